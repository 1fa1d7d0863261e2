// Several runs beside each other: seeds of one method are one row, and one band in every figure.
import { $, amount, ask, h, kept, listen, onTheme, score, start, tell, trouble, words } from "./page.js";
import { Exploring, swatch } from "./exploring.js";
import { Gallery } from "./figures.js";

const ids = new URLSearchParams(location.search).getAll("run");
const main = $("main");
start();
const select = (id, values) => kept(h("select", { id, onchange: renew }, Object.entries(values).map(([value, label]) => h("option", { value }, label))));
const across = select("across", { version: "versions", client_updates: "client updates", samples: "samples", flops: "operations (FLOPs)", bytes: "traffic", time: "virtual time", joules: "energy", wall: "wall-clock time" });
const on = select("on", { test: "test set", validation: "validation set" });
const exploring = new Exploring(across, { seeds: true });
const gallery = new Gallery((about) => ({ run: ids, ...(about.along ? { against: across.value } : {}), ...(about.judged ? { on: on.value } : {}) }), exploring);
const table = h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Table of methods" });
const told = h("p", { class: "dim" });
const known = new Set(); // the first news are of all runs, and nothing new
const notes = h("ul", { class: "notices" });

main.append(
  h("div", { class: "title" }, h("h1", {}, "Comparison"), h("p", { class: "dim" }, `${ids.length} runs`)),
  h("div", { class: "filters" }, h("div", {}, h("label", { for: "across" }, "Over"), across), h("div", {}, h("label", { for: "on" }, "Results on"), on)),
  told, table, notes,
  h("section", { "aria-labelledby": "h-figures" }, h("h2", { id: "h-figures" }, "Figures"), gallery.element));

async function show() {
  try {
    const found = await ask("/api/compare", { run: ids, on: on.value });
    const several = found.methods.some((method) => method.n > 1);
    const dagger = found.methods.some((method) => method.unfinished) ? " † Not all of its runs ended as planned." : "";
    told.textContent = several ? "Mean ± sample standard deviation over seeds; costs are means." : "One seed each: a picture, not a finding.";
    told.textContent += dagger;
    table.replaceChildren(h("table", { class: "methods" },
      h("caption", { class: "unseen" }, "Methods"),
      h("thead", {}, h("tr", {}, ["Method", "Seeds", `Final ${words(found.headline)}`, ...found.costs.map((cost) => cost.words[0].toUpperCase() + cost.words.slice(1))].map((label, i) => h("th", { scope: "col", class: i ? "number" : null }, label)))),
      h("tbody", {}, found.methods.map((method) => line(method, found.costs)))));
    exploring.know(found.methods);
    notes.replaceChildren(...found.notes.map((note) => h("li", {}, note)));
    await gallery.offer({ run: ids });
  } catch (error) {
    table.replaceChildren(trouble(error));
  }
}

function line(method, costs) {
  const final = method.final_accuracy;
  return h("tr", {},
    h("th", { scope: "row" }, swatch(method), h("a", { href: `/run?${new URLSearchParams({ run: method.runs[0] })}` }, method.unfinished ? `${method.method} †` : method.method)),
    h("td", { class: "number" }, String(method.n)),
    h("td", { class: "number" }, score(final.mean) + (final.sd === null ? "" : ` ± ${score(final.sd)}`)),
    costs.map(({ name, unit }) => h("td", { class: "number" }, amount(method.costs[name], unit))));
}

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
