// The page of one run: how it stands, what it costs, its figures, what it was.
import { $, ago, ask, h, kept, listen, problem, progress, say, score, shown, span, start, state, tell, trouble, whole, words } from "./page.js";
import { Exploring } from "./exploring.js";
import { Gallery } from "./figures.js";
import { Labels } from "./labels.js";
import { Live } from "./live.js";

const id = new URLSearchParams(location.search).get("run") ?? "";
const main = $("main");
start();
let run = null;
const place = h("div");
const head = h("div");
const numbers = h("dl", { class: "tiles" });
let labels = null;
const live = new Live(id);
const costs = h("dl", { class: "pairs" });
const across = kept(h("select", { id: "across", onchange: () => gallery.renew(true) }, Object.entries({
  version: "versions", client_updates: "client updates", samples: "samples", flops: "operations (FLOPs)", bytes: "traffic", time: "virtual time", joules: "energy", wall: "wall-clock time",
}).map(([value, label]) => h("option", { value }, label))));
const gallery = new Gallery((about) => ({ run: id, ...(about.along ? { against: across.value } : {}) }), new Exploring(across));
const stop = h("button", { type: "button", class: "danger", hidden: true, onclick: end }, "Stop this run");

const offering = gallery.offer({ run: id });
offering.catch(() => {}); // said below
try {
  run = await ask("/api/run", { run: id });
  document.title = `${run.name || run.method} – Polyrhythm`;
  tell(run.folder);
  labels = new Labels(id, run.control);
  const made = h("dl", { class: "made" }, Object.entries(run.made_of).map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))));
  main.append(place, head, made, labels.element, numbers, live.element,
    h("section", { "aria-labelledby": "h-figures" },
      h("div", { class: "title" }, h("h2", { id: "h-figures" }, "Figures"), h("div", { class: "inline" }, h("label", { for: "across" }, "over"), across)),
      gallery.element),
    h("section", { "aria-labelledby": "h-costs" }, h("h2", { id: "h-costs" }, "What it costs"), costs),
    h("section", { "aria-labelledby": "h-what" }, h("h2", { id: "h-what" }, "What it is"), about()));
  show();
  shown();
  offering.catch((error) => gallery.element.replaceWith(trouble(error)));
} catch (error) {
  main.append(trouble(error));
}
if (run) {
  let offered = performance.now();
  listen(() => `/api/news?${new URLSearchParams({ run: id })}`, (news) => {
    problem(place, news.problem);
    if (news.problem) return;
    const same = news.version === run.version && news.status === run.status;
    Object.assign(run, news);
    show();
    if (same) return;
    gallery.renew();
    if (performance.now() - offered > 5000 || news.status !== "running") {
      offered = performance.now();
      gallery.offer({ run: id }).catch(() => {});
    }
  });
}

function show() {
  labels.show(run);
  live.show(run.status);
  const left = run.status === "running" && run.rounds && run.version ? (run.wall / run.version) * (run.rounds - run.version) : null;
  const facts = [`seed ${run.seed}`, `started ${ago(run.started)}`];
  if (run.status === "running" && run.version) facts.push(`${(run.version / run.wall).toPrecision(3)} versions/s`);
  if (left !== null) facts.push(`about ${span(left)} left`);
  stop.hidden = !(run.control && run.status === "running");
  head.replaceChildren(...[
    h("div", { class: "title" }, h("h1", {}, run.name || run.method), state(run.status), stop),
    h("p", { class: "mono dim" }, run.name ? `${run.method}  ·  ${run.id}` : run.id),
    h("div", { class: "far" }, progress(run), h("span", { class: "dim" }, facts.join(" · "))),
    run.reason && run.status !== "finished" ? h("p", { class: "reason" }, run.reason) : null,
    run.status === "killed" ? h("p", { class: "reason" }, "Its process ended without a word. What it had recorded is here.") : null,
    ["killed", "stopped", "failed"].includes(run.status) ? h("p", { class: "dim" }, "To go on: ", h("code", {}, `polyrhythm resume ${run.id} --out ${run.folder}`)) : null,
  ].filter(Boolean));
  const metric = words(run.headline);
  const tiles = [
    [`${metric}, test`, score(run.score)],
    run.best_accuracy === null || run.best_accuracy === undefined ? null : [`best, by ${run.best_by}`, score(run.best_accuracy), `version ${whole(run.best_version)}`],
    run.last20_mean === null || run.last20_mean === undefined ? null : ["mean of the last 20", score(run.last20_mean), `± ${score(run.last20_sd)}`],
    ["training loss", score(run.train_loss)],
    ["client updates", whole(run.client_updates)],
    ["wall time", run.wall === undefined ? "–" : span(run.wall)],
  ].filter(Boolean);
  numbers.replaceChildren(...tiles.map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("span", { class: "number" }, value), more ? h("span", { class: "dim" }, more) : null))));
  costs.replaceChildren(...Object.entries({ ...run.costs, ...run.said }).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
  if (run.status === "running" && run.rounds) say(`${Math.floor((10 * (run.version ?? 0)) / run.rounds) * 10} percent done`);
  else say(`${run.status}${run.reason ? `: ${run.reason}` : ""}`);
}

async function end() {
  if (!confirm(`Stop ${run.name || run.id}? It keeps its record and can go on with "polyrhythm resume".`)) return;
  stop.disabled = true;
  stop.textContent = "Asked to stop …";
  try {
    await ask("/api/stop", { run: id }, { method: "POST" });
  } catch (error) {
    place.replaceChildren(trouble(error));
    stop.disabled = false;
    stop.textContent = "Stop this run";
  }
}

function about() {
  const pairs = (values) => h("dl", { class: "pairs" }, Object.entries(values).flatMap(([name, value]) => [h("dt", {}, words(name)), h("dd", { class: "mono" }, typeof value === "object" && value !== null ? JSON.stringify(value) : String(value))]));
  const { resolved, ...written } = run.config;
  return h("div", {},
    run.notices.length ? h("ul", { class: "notices" }, run.notices.map((notice) => h("li", {}, notice))) : null,
    pairs({ clients: run.clients, parameters: run.parameters.toLocaleString("en"), weights: run.weights.join(", ") || "none yet", checkpoints: run.checkpoints.length ? `of version ${run.checkpoints.join(", ")}` : "none", ...(run.digest ? { digest: run.digest } : {}) }),
    h("details", {}, h("summary", {}, "Configuration"), h("pre", { tabindex: 0 }, JSON.stringify(written, null, 1))),
    resolved ? h("details", {}, h("summary", {}, "Resolved, with every default"), h("pre", { tabindex: 0 }, JSON.stringify(resolved, null, 1))) : null,
    h("details", {}, h("summary", {}, "Machine and libraries"), pairs({ ...run.machine, ...run.libraries })));
}
