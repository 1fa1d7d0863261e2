// The list of runs: searched, filtered and sorted here, so that nothing waits for the server.
import { $, ago, ask, called, h, listen, problem, progress, say, score, shown, spark, start, state, tell, trouble, whole, words } from "./page.js";

const FIRST = 200; // rows that are drawn at once; the others when they are wanted
const MOST = 60; // runs side by side
const SORTS = {
  started: ["Newest first", (a, b) => b.number - a.number],
  oldest: ["Oldest first", (a, b) => a.number - b.number],
  score: ["Best result first", (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity)],
  name: ["By name", (a, b) => called(a).localeCompare(called(b), "en", { numeric: true })],
  method: ["By method", (a, b) => a.method.localeCompare(b.method, "en", { numeric: true })],
  state: ["By state", (a, b) => a.status.localeCompare(b.status)],
};
const ORDERED = { started: "descending", oldest: "ascending", score: "descending", name: "ascending", method: "ascending", state: "ascending" };

const runs = new Map();
const rows = new Map(); // id -> [run, row]
const asked = new URLSearchParams(location.search);
const selected = new Set(asked.getAll("pick"));
const chosen = {
  search: asked.get("search") ?? "", state: asked.get("state") ?? "", method: asked.get("method") ?? "",
  data: asked.get("data") ?? "", sort: asked.get("sort") in SORTS ? asked.get("sort") : "started",
};
let serial = -1, all = false;

const search = h("input", { type: "search", id: "search", placeholder: "Name, method, data, id, seed …", autocomplete: "off", oninput: () => choose("search", search.value) });
search.value = chosen.search;
const selects = {};
const field = (name, label) => {
  selects[name] = h("select", { id: name, onchange: (event) => choose(name, event.target.value) });
  return h("div", {}, h("label", { for: name }, label), selects[name]);
};
const count = h("p", { class: "dim", id: "count" });
const trouble_place = h("div");
const body = h("tbody");
const more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => { all = true; show(); } });
const compare = h("a", { class: "button", href: "/compare" });
const clear = h("button", { type: "button", class: "quiet", onclick: () => { selected.clear(); rows.clear(); show(); } }, "Clear");
const every = h("button", { type: "button", class: "quiet", id: "every", hidden: true, onclick: () => { for (const run of fitting()) selected.add(run.id); rows.clear(); show(); } });
const bar = h("div", { class: "selection", hidden: true }, compare, clear);
const COLUMNS = [["", null], ["Run", "name"], ["Method", "method"], ["Data", null], ["State", "state"], ["Progress", null], ["Curve", null], ["Result", "score"], ["Started", "started"]];
const heads = COLUMNS.map(([label, sort]) => h("th", { scope: "col", class: label ? `of-${label.toLowerCase()}` : "of-choose" },
  !label ? h("span", { class: "unseen" }, "Compare")
    : sort ? h("button", { type: "button", class: "head", onclick: () => choose("sort", sort === "started" && chosen.sort === "started" ? "oldest" : sort) }, label) : label));

$("main").append(
  h("div", { class: "title" }, h("h1", {}, "Runs"), count),
  h("form", { class: "filters", role: "search", "aria-label": "Runs", onsubmit: (event) => event.preventDefault() },
    h("div", { class: "wide" }, h("label", { for: "search" }, "Search"), search),
    field("state", "State"), field("method", "Method"), field("data", "Data"), field("sort", "Order")),
  trouble_place, h("p", {}, every),
  h("table", { class: "runs" }, h("caption", { class: "unseen" }, "Runs of this folder"), h("thead", {}, h("tr", {}, heads)), body),
  more, bar);
start();

function choose(name, value) {
  chosen[name] = value;
  all = false;
  show();
}

/** Keeps what is chosen in the address, so that a link or a reload shows the same. */
function note() {
  const query = new URLSearchParams(Object.entries(chosen).filter(([key, text]) => text && !(key === "sort" && text === "started")));
  for (const id of [...selected].slice(0, MOST)) query.append("pick", id);
  const address = query.size ? `?${query}` : location.pathname;
  if (address !== location.search) history.replaceState(null, "", address);
}

const fitting = () => {
  const sought = wanted();
  return [...runs.values()].filter((run) => fits(run, sought)).sort(SORTS[chosen.sort][1]);
};

function options(name, values, any) {
  const kept = chosen[name] && !values.includes(chosen[name]) ? [...values, chosen[name]] : values;
  const wanted = JSON.stringify(kept);
  const select = selects[name];
  if (select.dataset.shown === wanted) return;
  select.dataset.shown = wanted;
  select.replaceChildren(...(any ? [h("option", { value: "" }, any)] : []), ...kept.map((value) => h("option", { value, selected: value === chosen[name] }, value)));
}

function offer() {
  const of = (key) => [...new Set([...runs.values()].map((run) => run[key]).filter(Boolean))].sort();
  options("state", of("status"), "All");
  options("method", of("method"), "All");
  options("data", of("data"), "All");
}
selects.sort.append(...Object.entries(SORTS).map(([value, [label]]) => h("option", { value }, label)));

/** What is searched for: words, and seeds, which are numbers and not letters of an id. */
function wanted() {
  const seeds = new Set();
  const text = chosen.search.toLowerCase().replace(/\bseed[\s:=]*(\d+)\b/g, (_, seed) => {
    seeds.add(Number(seed));
    return " ";
  });
  return { seeds, terms: text.split(/\s+/).filter(Boolean) };
}

function fits(run, { seeds, terms }) {
  if (seeds.size && !seeds.has(run.seed)) return false;
  if (chosen.state && run.status !== chosen.state) return false;
  if (chosen.method && run.method !== chosen.method) return false;
  if (chosen.data && run.data !== chosen.data) return false;
  const text = `${run.name} ${run.method} ${run.data} ${run.status} seed`.toLowerCase();
  // An id is known by its beginning or by a good part of it: a single digit is in every one.
  return terms.every((term) => text.includes(term) || run.id.startsWith(term) || (term.length > 3 && run.id.includes(term)));
}

function show() {
  const found = fitting();
  note();
  const drawn = all ? found : found.slice(0, FIRST);
  const focus = document.activeElement?.id;
  const elements = drawn.map(row);
  if (elements.length !== body.children.length || elements.some((element, i) => element !== body.children[i])) {
    body.replaceChildren(...elements);
    if (focus?.startsWith("c-")) document.getElementById(focus)?.focus();
  }
  more.hidden = drawn.length === found.length;
  more.textContent = `Show all ${whole(found.length)}`;
  const going = [...runs.values()].filter((run) => run.status === "running").length;
  const shown = found.length === runs.size ? `${whole(runs.size)} runs` : `${whole(found.length)} of ${whole(runs.size)} runs`;
  count.textContent = `${runs.size === 1 ? "1 run" : shown}${going ? `, ${going} running` : ""}`;
  if (chosen.search.trim() || chosen.state || chosen.method || chosen.data) say(count.textContent);
  if (!found.length) body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "none" }, runs.size ? "No run fits." : "No runs yet. They appear here as soon as one starts: polyrhythm run")));
  selects.sort.value = chosen.sort;
  heads.forEach((head, i) => {
    const sort = COLUMNS[i][1];
    const on = sort && (chosen.sort === sort || (sort === "started" && chosen.sort === "oldest"));
    if (on) head.setAttribute("aria-sort", ORDERED[chosen.sort]);
    else head.removeAttribute("aria-sort");
  });
  const ids = [...selected].filter((id) => runs.has(id));
  bar.hidden = !ids.length;
  every.hidden = found.length < 2 || found.length > MOST || found.every((run) => selected.has(run.id));
  every.textContent = `Select all ${whole(found.length)}`;
  compare.textContent = ids.length === 1 ? "Open 1 run" : `Compare ${ids.length} runs`;
  compare.href = ids.length === 1 ? `/run?${new URLSearchParams({ run: ids[0] })}` : `/compare?${new URLSearchParams(ids.map((id) => ["run", id]))}`;
}

function row(run) {
  const [known, made] = rows.get(run.id) ?? [];
  if (known === run) return made;
  const box = h("input", { type: "checkbox", id: `c-${run.id}`, "aria-label": `Compare ${called(run)}, ${run.id}`, onchange: (event) => {
    if (event.target.checked) selected.add(run.id);
    else selected.delete(run.id);
    show();
  } });
  box.checked = selected.has(run.id);
  const metric = words(run.headline);
  const cell = (name, ...children) => h("td", { class: `of-${name}` }, ...children);
  const element = h("tr", {},
    cell("choose", box),
    h("th", { scope: "row", class: "of-run" },
      h("a", { href: `/run?${new URLSearchParams({ run: run.id })}`, class: run.name ? null : "mono" }, run.name || run.id),
      run.name ? h("span", { class: "mono dim" }, run.id) : null),
    cell("method", h("span", { class: "mono" }, run.method), h("span", { class: "dim" }, `seed ${run.seed}`)),
    cell("data", h("span", { class: "mono", title: run.data }, run.data ?? "–")),
    cell("state", state(run.status), run.reason && run.status !== "finished" ? h("span", { class: "dim reason", title: run.reason }, run.reason) : null),
    cell("progress", progress(run)),
    cell("curve", spark(run.curve, `${metric} from ${score(run.curve[0])} to ${score(run.score)}`, run.share)),
    cell("result", h("span", { class: "number" }, score(run.score)), h("span", { class: "dim" }, metric)),
    cell("started", h("time", { datetime: run.started, title: run.started }, ago(run.started))));
  rows.set(run.id, [run, element]);
  return element;
}

function take(changed, gone = []) {
  for (const run of changed) runs.set(run.id, run);
  for (const id of gone) runs.delete(id);
  offer();
  show();
}

try {
  const answer = await ask("/api/runs");
  serial = answer.serial;
  tell(answer.folder);
  problem(trouble_place, answer.problem);
  take(answer.runs);
  shown();
} catch (error) {
  trouble_place.replaceChildren(trouble(error));
}
listen(() => `/api/news?serial=${serial}`, (news) => {
  serial = -1; // after a break, everything is told again
  problem(trouble_place, news.problem);
  take(news.runs, news.gone);
});
setInterval(() => {
  for (const time of body.querySelectorAll("time")) time.textContent = ago(time.dateTime);
}, 30000);
