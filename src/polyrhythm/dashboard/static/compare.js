// Several runs beside each other: seeds of one method are one row, and one band in every figure.
import { $, amount, ask, h, kept, listen, onTheme, say, score, start, tell, trouble, words } from "./page.js";
import { Exploring, swatch } from "./exploring.js";
import { Gallery } from "./figures.js";

const address = new URLSearchParams(location.search);
const ids = address.getAll("run");
const main = $("main");
start();
const select = (id, values) => kept(h("select", { id, onchange: renew }, Object.entries(values).map(([value, label]) => h("option", { value }, label))));
const across = select("across", { version: "versions", client_updates: "client updates", samples: "samples", flops: "operations (FLOPs)", bytes: "traffic", time: "virtual time", joules: "energy", wall: "wall-clock time" });
const on = select("on", { test: "test set", validation: "validation set" });
// What rows there can be is known when the first answer has come; until then what the address asks for is taken at its word.
const rows = h("select", { id: "group_by", onchange: () => { remember("group_by", rows.value); remember("baseline", ""); baseline.value = ""; renew(); } });
const baseline = h("select", { id: "baseline", onchange: () => { remember("baseline", baseline.value); renew(); } });
const asked = (select) => (select.options.length ? select.value : address.get(select.id) ?? "");
const given = (select) => (asked(select) ? { [select.id]: asked(select) } : {});
const exploring = new Exploring(across, { seeds: true });
const gallery = new Gallery((about) => ({
  run: ids, ...given(rows), ...(about.along ? { against: across.value } : {}), ...(about.judged ? { on: on.value } : {}),
  ...(about.name === "differences" ? given(baseline) : {}),
}), exploring);
const table = h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Table of methods" });
const apart = h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Table of settings that differ" });
const verdict = h("p", { class: "verdict" });
const told = h("p", { class: "dim" });
const known = new Set(); // the first news are of all runs, and nothing new
const notes = h("ul", { class: "notices" });
const setting = (id, label, control) => h("div", {}, h("label", { for: id }, label), control);
let last = null; // what the table shows
let sort = { by: address.get("sort") ?? "", up: address.get("order") === "up" };

main.append(
  h("div", { class: "title" }, h("h1", {}, "Comparison"), h("p", { class: "dim" }, `${ids.length} runs`)),
  h("div", { class: "filters" }, setting("group_by", "Rows", rows), setting("baseline", "Differences to", baseline), setting("on", "Results on", on), setting("across", "Over", across)),
  verdict, notes, table, told,
  h("section", { "aria-labelledby": "h-figures" }, h("h2", { id: "h-figures" }, "Figures"), gallery.element),
  h("section", { "aria-labelledby": "h-settings" }, h("h2", { id: "h-settings" }, "What differs"), apart));

async function show() {
  try {
    const found = await ask("/api/compare", { run: ids, on: on.value, ...given(rows), ...given(baseline) });
    offer(rows, { "": "methods", ...Object.fromEntries(found.keys.map((key) => [key, key])) });
    offer(baseline, Object.fromEntries(found.methods.map(({ method }) => [method, method])), found.baseline);
    last = found;
    const several = found.methods.some((method) => method.n > 1);
    const dagger = found.methods.some((method) => method.unfinished) ? " † Not all of its runs ended as planned." : "";
    const paired = found.methods.length > 1 ? ` Difference: paired by seed, with its 95 % interval; ° it holds 0. ${found.corrected}` : "";
    const bold = found.methods.some((method) => method.best) ? " Bold: the best, where the interval of its difference to the second leaves out 0." : "";
    told.textContent = (several ? "Mean ± sample standard deviation over seeds; costs are means." : "One seed each: a picture, not a finding.") + bold + paired + dagger;
    verdict.textContent = found.verdict;
    exploring.know(found.methods);
    notes.replaceChildren(...found.notes.map((note) => h("li", {}, note)));
    draw();
    settings(found);
    await gallery.offer({ run: ids, ...given(rows) });
  } catch (error) {
    table.replaceChildren(trouble(error));
  }
}

/** Gives a choice its options, and keeps what was chosen. */
function offer(select, values, usual = "") {
  const wanted = JSON.stringify(values);
  const value = asked(select) || usual;
  if (select.dataset.shown !== wanted) select.replaceChildren(...Object.entries(values).map(([value, label]) => h("option", { value }, label)));
  select.dataset.shown = wanted;
  select.value = value in values ? value : usual;
}

function remember(key, value) {
  const query = new URLSearchParams(location.search);
  address.delete(key);
  if (value) query.set(key, value);
  else query.delete(key);
  history.replaceState(null, "", `?${query}`);
}

/** The columns: a head, what it sorts by, and whether the greatest comes first. */
function columns(found) {
  return [
    ["method", rows.value || "Method", (method) => found.methods.indexOf(method), false],
    ["n", "Seeds", (method) => method.n, true],
    ["final", `Final ${words(found.headline)}`, (method) => method.final_accuracy.mean, true],
    ...(found.methods.length > 1 ? [
      ["gain", "Difference", (method) => method.gain?.mean, true],
      ["holm", "p (Holm)", (method) => method.gain?.holm, false]] : []),
    ...found.costs.map((cost) => [cost.name, cost.words[0].toUpperCase() + cost.words.slice(1), (method) => method.costs[cost.name], false]),
  ];
}

function draw() {
  const heads = columns(last);
  const by = heads.find(([name]) => name === sort.by);
  const methods = [...last.methods];
  if (by) {
    const value = (method) => by[2](method) ?? null;
    // What has no number comes last, whichever way.
    methods.sort((a, b) => (value(a) === null) - (value(b) === null) || (sort.up ? 1 : -1) * (value(a) - value(b)));
  }
  const focus = document.activeElement?.id;
  table.replaceChildren(h("table", { class: "methods" },
    h("caption", { class: "unseen" }, "Methods"),
    h("thead", {}, h("tr", {}, heads.map(([name, label, , down], i) => h("th", {
      scope: "col", class: i ? "number" : null, "aria-sort": by && name === sort.by ? (sort.up ? "ascending" : "descending") : null,
    }, h("button", { type: "button", class: "head", id: `by-${name}`, onclick: () => order(name, label, down) }, label))))),
    h("tbody", {}, methods.map((method) => line(method, last.costs)))));
  if (focus?.startsWith("by-")) $(focus)?.focus();
}

function order(name, label, down) {
  sort = { by: name, up: sort.by === name ? !sort.up : !down };
  remember("sort", name);
  remember("order", sort.up ? "up" : "");
  draw();
  say(`sorted by ${label}, ${sort.up ? "ascending" : "descending"}`);
}

function line(method, costs) {
  const final = method.final_accuracy;
  const result = score(final.mean) + (final.sd === null ? "" : ` ± ${score(final.sd)}`);
  const { gain } = method;
  const p = gain && typeof gain.holm === "number" ? (gain.holm < 0.001 ? "< 0.001" : gain.holm.toFixed(3)) : "–";
  return h("tr", {},
    h("th", { scope: "row" }, swatch(method), h("a", { href: `/run?${new URLSearchParams({ run: method.runs[0] })}` }, method.unfinished ? `${method.method} †` : method.method)),
    h("td", { class: "number" }, String(method.n)),
    h("td", { class: "number" }, method.best ? h("strong", {}, result) : result),
    last.methods.length > 1 ? [
      h("td", { class: "number" }, gain ? gain.told + (gain.n === 1 ? " (1 pair)" : "") : "baseline"),
      h("td", { class: "number" }, gain?.shown ? h("strong", {}, p) : p)] : null,
    costs.map(({ name, unit }) => h("td", { class: "number" }, unit === "s" ? seconds(method.costs[name]) : amount(method.costs[name], unit))));
}

/** A span of virtual time, as everywhere: hours from 10,000 s on. */
function seconds(value) {
  if (typeof value !== "number") return "–";
  if (value < 999.5) return `${Number(value.toPrecision(3))} s`;
  const [size, unit] = value < 1e4 ? [Math.round(value), "s"] : [Number((value / 3600).toPrecision(4)), "h"];
  return `${size.toLocaleString("en")} ${unit}`;
}

/** A row for each setting in which the methods differ; marked where it is other than in the first. */
function settings(found) {
  if (!found.settings.length) {
    apart.replaceChildren(h("p", { class: "dim" }, found.methods.length > 1 ? "No setting." : "There is one method."));
    return;
  }
  const cell = (value, first) => h("td", { class: "mono" }, value === first ? breakable(value) : h("mark", {}, breakable(value)));
  apart.replaceChildren(h("table", { class: "settings" },
    h("caption", { class: "dim" }, "Marked: other than in the first."),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Setting"), found.methods.map(({ method }) => h("th", { scope: "col" }, breakable(method))))),
    h("tbody", {}, found.settings.map(([key, ...values]) => h("tr", {}, h("th", { scope: "row", class: "mono" }, breakable(key)), values.map((value) => cell(value, values[0])))))));
}

/** A text that is broken behind a dot, a comma or the like, and never within a word. */
const breakable = (value) => String(value ?? "–").split(/(?<=[.,=|]|\w\()(?=[a-z])/i).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

function renew() {
  show();
  gallery.renew(true);
}

if (ids.length) {
  await show();
  ask("/api/runs").then((answer) => tell(answer.folder)).catch(() => {});
  onTheme(show);
  let timer = null;
  listen(() => "/api/news", (news) => {
    if (timer || !news.runs.some((run) => ids.includes(run.id) && (known.has(run.id) || run.status === "running"))) {
      for (const run of news.runs) known.add(run.id);
      return;
    }
    timer = setTimeout(() => { timer = null; show(); gallery.renew(); }, 3000);
  });
} else {
  table.append(h("p", {}, "Choose runs in ", h("a", { href: "/" }, "the list"), "."));
}
