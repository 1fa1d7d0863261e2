// One study: its trials as figures and as a table, and the runs that are compared.
import { $, ask, h, kept, progress, say, score, shown, span, start, state, tell, trouble, whole, words } from "./page.js";
import { Gallery } from "./figures.js";

const place = new URLSearchParams(location.search).get("study") ?? "";
const main = $("main");
start();
let study = null, arm = null;
const problem = h("div");
const head = h("div");
const select = (id, about = {}) => h("select", { id, ...about });
const arms = select("arm", { onchange: () => { arm = arms.value; pick(); gallery.offer(of()).catch(fail); gallery.renew(true); table(); } });
const across = kept(h("select", { id: "across", onchange: () => gallery.renew(true) }, [["trial", "trials"], ["time", "time"]].map(([value, label]) => h("option", { value }, label))));
const keys = { x: select("x", { onchange: () => gallery.renew(true) }), y: select("y", { onchange: () => gallery.renew(true) }) };
const of = () => ({ study: place, arm });
const gallery = new Gallery((about) => ({
  ...of(), ...(about.name === "history" ? { against: across.value } : {}),
  ...(about.name === "contour" ? { x: keys.x.value, y: keys.y.value } : {}),
}));
const trials = h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Table of trials" });
const compared = h("div");
const choice = h("div", { class: "inline", hidden: true }, h("label", { for: "arm" }, "of"), arms);
const inline = (label, element) => [h("label", { for: element.id }, label), element];
const pair = h("span", { class: "inline" }, inline("two keys", keys.x), inline("and", keys.y));
const fail = (error) => problem.replaceChildren(trouble(error));
const current = () => study.arms.find((one) => one.name === arm);

/** Puts the keys of the arm into the choices of the picture of two. */
function pick() {
  const varied = current()?.varied ?? [];
  pair.hidden = varied.length < 3;
  for (const [name, place] of [["x", keys.x], ["y", keys.y]]) {
    const before = place.value;
    place.replaceChildren(h("option", { value: "" }, name === "x" ? "what matters most" : "what matters next"), ...varied.map((key) => h("option", { value: key, selected: key === before }, key)));
  }
}

function show() {
  const facts = study.trials ? [`${whole(study.over)} of ${whole(study.trials)} trials are over`] : [];
  const made = study.compared + study.without;
  if (study.wanted) facts.push(`${whole(made)} of ${whole(study.wanted)} runs to compare are over`);
  if (study.failed) facts.push(`${whole(study.failed)} failed`);
  if (study.left !== null) facts.push(`about ${span(study.left)} left, by the mean of those that are over`);
  head.replaceChildren(
    h("div", { class: "title" }, h("h1", {}, study.name), state(study.state)),
    h("p", { class: "dim" }, h("a", { href: "/studies" }, "Studies"), "  ·  ", h("a", { href: "/" }, "Runs")),
    h("div", { class: "far" }, progress({ version: study.over + made, rounds: study.trials + study.wanted, status: study.state }), h("span", { class: "dim" }, facts.join(" · "))));
  say(facts[0]);
}

const run = (id, label) => (study.apart ? h("span", { class: "mono", title: id }, label) : h("a", { href: `/run?${new URLSearchParams({ run: id })}` }, label));
const text = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));

/** The trials, the best first, then those without a score. */
function table() {
  const known = current();
  if (!known) {
    trials.replaceChildren(h("p", { class: "dim" }, "Nothing is tried in this study."));
    return;
  }
  const { search } = known;
  const said = [`${search.search} search`, search.by ? `judged by ${search.by}` : "", search.prune ? `may stop early after ${search.prune} versions` : "", `seeds ${(search.seeds ?? []).join(", ")}`].filter(Boolean).join(", ");
  const rank = { finished: 0, pruned: 1, failed: 2, waiting: 3 };
  const ranked = [...known.trials].sort((a, b) => (rank[a.state] ?? 4) - (rank[b.state] ?? 4) || (b.score ?? -Infinity) - (a.score ?? -Infinity) || a.number - b.number);
  const columns = ["Trial", ...known.keys, `Validation ${words(study.headline)}`, "State", "Time", "Runs"];
  trials.replaceChildren(h("table", { class: "trials" },
    h("caption", {}, `${known.counted}; ${said}. The score of a pruned trial is of fewer versions.`),
    h("thead", {}, h("tr", {}, columns.map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", {}, ranked.map((trial) => h("tr", { class: trial.best ? "best" : trial.state },
      h("th", { scope: "row" }, String(trial.number), trial.best ? h("span", { class: "tag mark" }, "best") : null),
      known.keys.map((key) => h("td", { class: "mono" }, text(trial.setting[key]))),
      h("td", { class: "number" }, trial.score === null ? "–" : score(trial.score)),
      h("td", {}, h("span", { class: `state ${{ pruned: "stopped", waiting: "waiting" }[trial.state] ?? trial.state}` }, trial.state), trial.reason ? h("span", { class: "dim reason" }, ` ${trial.reason.split("\n")[0]}`) : null, trial.same_as === null ? null : h("span", { class: "dim" }, ` as trial ${trial.same_as}`)),
      h("td", { class: "number" }, trial.started === null || trial.ended === null ? "–" : span(trial.ended - trial.started)),
      h("td", {}, Object.entries(trial.runs).map(([seed, id]) => [run(id, `seed ${seed}`), " "])))))));
}

function cells() {
  const some = study.cells.map((cell) => {
    const runs = Object.entries(cell.runs);
    const all = runs.length > 1 && !study.apart ? h("a", { href: `/compare?${new URLSearchParams(runs.map(([, id]) => ["run", id]))}` }, "side by side") : null;
    return h("tr", {}, h("th", { scope: "row" }, cell.name || study.name), h("td", {}, runs.map(([seed, id]) => [run(id, `seed ${seed}`), " "]), all),
      h("td", { class: "reason" }, Object.entries(cell.failed).map(([seed, why]) => `seed ${seed}: ${why}`).join("; ")));
  });
  compared.replaceChildren(...(some.length ? [h("table", {}, h("thead", {}, h("tr", {}, ["Cell", "Runs", "No result"].map((label) => h("th", { scope: "col" }, label)))), h("tbody", {}, some))] : [h("p", { class: "dim" }, study.state === "running" ? "None yet." : "None.")]));
}

function take(answer) {
  study = answer;
  if (!study.arms.some((one) => one.name === arm)) arm = study.arms[0]?.name ?? null;
  arms.replaceChildren(...study.arms.map((one) => h("option", { value: one.name, selected: one.name === arm }, one.name || study.name)));
  choice.hidden = study.arms.length < 2;
  show();
  pick();
  table();
  cells();
}

try {
  take(await ask("/api/study", { study: place }));
  document.title = `${study.name} – Polyrhythm`;
  tell(study.folder);
  main.append(problem, head,
    h("section", { "aria-labelledby": "h-figures" }, h("div", { class: "title" }, h("h2", { id: "h-figures" }, "Trials"), choice, h("div", { class: "inline choices" }, inline("history over", across), pair)), gallery.element),
    h("section", { "aria-labelledby": "h-trials" }, h("h2", { id: "h-trials" }, "Table"), trials),
    h("section", { "aria-labelledby": "h-compared" }, h("h2", { id: "h-compared" }, "Compared runs"), compared));
  if (arm !== null) await gallery.offer(of());
  shown();
} catch (error) {
  main.append(trouble(error));
}
setInterval(async () => {
  if (document.hidden || study === null || study.state !== "running") return;
  try {
    const before = `${study.over} ${study.compared}`;
    take(await ask("/api/study", { study: place }));
    problem.replaceChildren();
    if (before === `${study.over} ${study.compared}` || arm === null) return;
    await gallery.offer(of());
    gallery.renew();
  } catch (error) {
    fail(error);
  }
}, 3000);
