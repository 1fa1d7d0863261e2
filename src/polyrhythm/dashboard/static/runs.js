// The list of runs: searched, filtered and sorted here, so that nothing waits for the server.
import { $, ago, ask, called, h, listen, problem, progress, say, score, shown, spark, start, state, tell, trouble, whole, words } from "./page.js";
import { chips } from "./labels.js";

const FIRST = 100; // rows that are drawn at once; as many more when their end comes into view
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
const rows = new Map(); // id -> what is drawn of a run: { run, element, box, link }
const texts = new WeakMap(); // run -> what is searched of it
const asked = new URLSearchParams(location.search);
const selected = new Set(asked.getAll("pick"));
const chosen = {
  search: asked.get("search") ?? "", state: asked.get("state") ?? "", method: asked.get("method") ?? "",
  data: asked.get("data") ?? "", tag: asked.get("tag") ?? "", archived: asked.get("archived") === "yes" ? "yes" : "", sort: asked.get("sort") in SORTS ? asked.get("sort") : "started",
};
let serial = -1, most = FIRST, control = false, active = null;

const search = h("input", { type: "search", id: "search", placeholder: "Name, method, data, tag, note, id, seed …", autocomplete: "off", oninput: () => choose("search", search.value) });
search.value = chosen.search;
const selects = {};
const field = (name, label) => {
  selects[name] = h("select", { id: name, onchange: (event) => choose(name, event.target.value) });
  return h("div", {}, h("label", { for: name }, label), selects[name]);
};
const count = h("p", { class: "dim", id: "count" });
const trouble_place = h("div");
const body = h("tbody");
const more = h("button", { type: "button", class: "quiet", id: "more", hidden: true, onclick: () => { most += FIRST; show(); } });
const archive = h("input", { type: "checkbox", id: "archived", onchange: () => choose("archived", archive.checked ? "yes" : "") });
archive.checked = chosen.archived === "yes";
const compare = h("a", { class: "button", href: "/compare" });
const clear = h("button", { type: "button", class: "quiet", onclick: () => { selected.clear(); show(); } }, "Clear");
const every = h("button", { type: "button", class: "quiet", id: "every", hidden: true, onclick: () => { for (const run of fitting()) selected.add(run.id); show(); } });
const tag = h("input", { id: "new-tag", "aria-label": "New tag", placeholder: "Tag", maxlength: 60, autocomplete: "off" });
const put = (words, change) => h("button", { type: "button", onclick: () => label(change) }, words);
const away = put("Archive", () => ({ archived: true })), back = put("Out of the archive", () => ({ archived: false }));
const labels = h("span", { class: "labelling", hidden: true }, tag, put("Add tag", () => tagged("add")), put("Remove tag", () => tagged("remove")), away, back);
const bar = h("div", { class: "selection", role: "group", "aria-label": "Chosen runs", hidden: true }, compare, labels, clear);
const studies = h("a", { href: "/studies", hidden: true }, "Studies");
const COLUMNS = [["", null], ["Run", "name"], ["Method", "method"], ["Data", null], ["State", "state"], ["Progress", null], ["Curve", null], ["Result", "score"], ["Started", "started"]];
const heads = COLUMNS.map(([label, sort]) => h("th", { scope: "col", class: label ? `of-${label.toLowerCase()}` : "of-choose" },
  !label ? h("span", { class: "unseen" }, "Compare")
    : sort ? h("button", { type: "button", class: "head", onclick: () => choose("sort", sort === "started" && chosen.sort === "started" ? "oldest" : sort) }, label) : label));

$("main").append(
  h("div", { class: "title" }, h("h1", {}, "Runs"), count, studies),
  h("form", { class: "filters", role: "search", "aria-label": "Runs", onsubmit: (event) => event.preventDefault() },
    h("div", { class: "wide" }, h("label", { for: "search" }, "Search"), search),
    field("state", "State"), field("method", "Method"), field("data", "Data"), field("tag", "Tag"), field("sort", "Order"),
    h("div", { class: "tick" }, archive, h("label", { for: "archived" }, "Archive, too"))),
  trouble_place, h("p", {}, every),
  h("table", { class: "runs" }, h("caption", { class: "unseen" }, "Runs of this folder; the arrow keys go from row to row"), h("thead", {}, h("tr", {}, heads)), body),
  more, bar);
start();

function choose(name, value) {
  chosen[name] = value;
  most = FIRST;
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
  options("tag", [...new Set([...runs.values()].flatMap((run) => run.tags))].sort(), "All");
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
  if (chosen.tag && !run.tags.includes(chosen.tag)) return false;
  if (run.archived && !chosen.archived) return false;
  if (!terms.length) return true;
  let text = texts.get(run);
  if (text === undefined) texts.set(run, text = `${run.name} ${run.method} ${run.data} ${run.status} ${run.tags.join(" ")} ${run.note} seed`.toLowerCase());
  // An id is known by its beginning or by a good part of it: a single digit is in every one.
  return terms.every((term) => text.includes(term) || run.id.startsWith(term) || (term.length > 3 && run.id.includes(term)));
}

function show() {
  const found = fitting();
  note();
  const drawn = found.slice(0, most);
  arrange(drawn.map(row));
  if (!drawn.some((run) => run.id === active)) activate(drawn[0]?.id ?? null);
  more.hidden = drawn.length === found.length;
  more.textContent = `${whole(drawn.length)} of ${whole(found.length)}: show more`;
  const going = [...runs.values()].filter((run) => run.status === "running").length;
  const hidden = chosen.archived ? 0 : [...runs.values()].filter((run) => run.archived).length, all = runs.size - hidden;
  const shown = found.length === all ? `${whole(all)} ${all === 1 ? "run" : "runs"}` : `${whole(found.length)} of ${whole(all)} runs`;
  count.textContent = `${shown}${going ? `, ${going} running` : ""}${hidden ? `, ${whole(hidden)} in the archive` : ""}`;
  if (chosen.search.trim() || chosen.state || chosen.method || chosen.data || chosen.tag) say(count.textContent);
  if (!found.length) body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "none" }, runs.size ? "No run fits." : "No runs yet. They appear here as soon as one starts: polyrhythm run")));
  selects.sort.value = chosen.sort;
  heads.forEach((head, i) => {
    const sort = COLUMNS[i][1];
    const on = sort && (chosen.sort === sort || (sort === "started" && chosen.sort === "oldest"));
    if (on) head.setAttribute("aria-sort", ORDERED[chosen.sort]);
    else head.removeAttribute("aria-sort");
  });
  for (const { run, box } of rows.values()) box.checked = selected.has(run.id);
  const ids = [...selected].filter((id) => runs.has(id));
  labels.hidden = !control;
  away.hidden = ids.every((id) => runs.get(id).archived);
  back.hidden = !ids.some((id) => runs.get(id).archived);
  bar.hidden = !ids.length;
  every.hidden = found.length < 2 || found.length > MOST || found.every((run) => selected.has(run.id));
  every.textContent = `Select all ${whole(found.length)}`;
  compare.textContent = ids.length === 1 ? "Open 1 run" : `Compare ${ids.length} runs`;
  compare.href = ids.length === 1 ? `/run?${new URLSearchParams({ run: ids[0] })}` : `/compare?${new URLSearchParams(ids.map((id) => ["run", id]))}`;
}

/** Puts rows into the table in their order; those that are there stay, and keep the focus. */
function arrange(elements) {
  const wanted = new Set(elements);
  for (const element of [...body.children]) if (!wanted.has(element)) element.remove();
  let place = body.firstElementChild;
  for (const element of elements) {
    if (element === place) place = place.nextElementSibling;
    else body.insertBefore(element, place);
  }
}

/** Makes a row the one that the Tab key comes to; the arrow keys go to the others. */
function activate(id) {
  for (const [one, index] of [[active, -1], [id, 0]]) {
    const drawn = rows.get(one);
    if (drawn) drawn.box.tabIndex = drawn.link.tabIndex = index;
  }
  active = id;
}
body.addEventListener("focusin", (event) => activate(event.target.closest("tr")?.dataset.run ?? active));
body.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const at = event.target.closest("tr");
  if (!step || !at || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (step === 1 && !at.nextElementSibling && !more.hidden) more.click();
  const next = rows.get((step === 1 ? at.nextElementSibling : at.previousElementSibling)?.dataset.run);
  if (next) (event.target.type === "checkbox" ? next.box : next.link).focus();
});

function row(run) {
  const known = rows.get(run.id);
  if (known?.run === run) return known.element;
  const index = run.id === active ? 0 : -1;
  const box = h("input", { type: "checkbox", tabindex: index, id: `c-${run.id}`, "aria-label": `Compare ${called(run)}, ${run.id}`, onchange: (event) => {
    if (event.target.checked) selected.add(run.id);
    else selected.delete(run.id);
    show();
  } });
  const link = h("a", { href: `/run?${new URLSearchParams({ run: run.id })}`, tabindex: index, class: run.name ? null : "mono" }, run.name || run.id);
  const metric = words(run.headline);
  const cell = (name, ...children) => h("td", { class: `of-${name}` }, ...children);
  const element = h("tr", { "data-run": run.id, class: run.archived ? "away" : null },
    cell("choose", box),
    h("th", { scope: "row", class: "of-run" },
      link, run.name ? h("span", { class: "mono dim" }, run.id) : null,
      chips(run)),
    cell("method", h("span", { class: "mono" }, run.method), h("span", { class: "dim" }, `seed ${run.seed}`)),
    cell("data", h("span", { class: "mono", title: run.data }, run.data ?? "–"), typeof run.clients === "number" ? h("span", { class: "dim" }, `${whole(run.clients)} clients`) : null),
    cell("state", state(run.status), run.reason && run.status !== "finished" ? h("span", { class: "dim reason", title: run.reason }, run.reason) : null),
    cell("progress", progress(run)),
    cell("curve", spark(run.curve, `${metric} from ${score(run.curve[0])} to ${score(run.score)}`, run.share)),
    cell("result", h("span", { class: "number" }, score(run.score)), h("span", { class: "dim" }, metric)),
    cell("started", h("time", { datetime: run.started, title: run.started }, ago(run.started))));
  const focus = known?.element.contains(document.activeElement) ? document.activeElement.type : null;
  rows.set(run.id, { run, element, box, link });
  if (focus !== null) {
    known.element.replaceWith(element);
    (focus === "checkbox" ? box : link).focus();
  }
  return element;
}

const tagged = (way) => (tag.value.trim() ? { [way]: [tag.value.trim()] } : null);

async function label(made) {
  const change = made();
  if (change === null) return tag.focus();
  try {
    const ids = [...selected].filter((id) => runs.has(id));
    await ask("/api/label", {}, { method: "POST", body: JSON.stringify({ runs: ids, ...change }) });
    tag.value = "";
    take((await ask("/api/runs")).runs);
  } catch (error) {
    trouble_place.replaceChildren(trouble(error));
  }
}

function take(changed, gone = []) {
  for (const run of changed) {
    if (JSON.stringify(runs.get(run.id)) !== JSON.stringify(run)) runs.set(run.id, run);
  }
  for (const id of gone) {
    runs.delete(id);
    rows.delete(id);
  }
  offer();
  show();
}

try {
  const answer = await ask("/api/runs");
  serial = answer.serial;
  control = answer.control;
  studies.hidden = !answer.studies;
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
new IntersectionObserver((seen) => {
  if (seen.some((one) => one.isIntersecting) && !more.hidden) more.click();
}, { rootMargin: "600px" }).observe(more);
