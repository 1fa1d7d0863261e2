// What all pages share: making elements, talking to the server, news, the theme, words for numbers.

/** An element. Text from runs only ever becomes text: nothing here parses HTML. */
export function h(name, about = {}, ...children) {
  const element = document.createElement(name);
  give(element, about, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(name, about = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  give(element, about, children);
  return element;
}

function give(element, about, children) {
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

export const $ = (id) => document.getElementById(id);

/** Asks the server; what it refuses is thrown with its four parts. */
export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(key, one);
  }
  let response;
  try {
    response = await fetch(`${path}?${query}`, options);
  } catch {
    throw { found: "the server does not answer", fix: "start it again: polyrhythm ui" };
  }
  const answer = await response.json();
  if (!response.ok) throw answer.error;
  return answer;
}

export function trouble(error) {
  const parts = [["expected", error.expected], ["because", error.why], ["do", error.fix]].filter(([, text]) => text);
  return h("div", { class: "trouble", role: "alert" },
    h("p", {}, h("strong", {}, error.found ?? String(error))),
    parts.length ? h("dl", { class: "pairs" }, parts.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])) : null);
}

/** Puts a message in a place, or takes it away. */
export function problem(place, text) {
  place.replaceChildren(...(text ? [h("p", { class: "trouble" }, text)] : []));
}

/** Calls with each piece of news. Hidden pages listen to nothing: a browser has but few connections to one server. */
export function listen(address, heard) {
  let source = null;
  const link = $("link");
  const open = () => {
    if (document.hidden || source) return;
    source = new EventSource(address());
    source.onopen = () => link.replaceChildren();
    source.onmessage = (event) => heard(JSON.parse(event.data));
    source.onerror = () => link.replaceChildren("no connection; trying again");
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

/** Writes choices into the address, so that a link or a reload shows the same; what is usual has no place there. */
export function addressed(choices) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(choices)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== "" && one !== false) query.append(name, one);
  }
  history.replaceState(null, "", `?${query}`);
}

/** A choice that the address keeps. */
export function kept(select) {
  const usual = select.value, asked = new URLSearchParams(location.search).get(select.id);
  if ([...select.options].some((option) => option.value === asked)) select.value = asked;
  select.addEventListener("change", () => addressed({ [select.id]: select.value === usual ? null : select.value }));
  return select;
}

let last = "";
/** Says something to whoever listens to the page instead of looking at it. */
export function say(text) {
  if (text !== last) $("said").textContent = last = text;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => document.documentElement.dataset.theme ?? "auto";
export const theme = () => (chosen() === "auto" ? (dark.matches ? "dark" : "light") : chosen());

/** Calls when the theme has changed. */
export function onTheme(changed) {
  dark.addEventListener("change", changed);
  document.addEventListener("themechange", changed);
}

const THEMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
export function start(folder) {
  const button = $("theme");
  const show = () => (button.textContent = THEMES[chosen()]);
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(chosen()) + 1) % names.length];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
    show();
    document.dispatchEvent(new Event("themechange"));
  });
  show();
  if (folder) tell(folder);
}
export const tell = (folder) => ($("folder").textContent = folder);

/** Notes when a page has shown what its visitor came for, in milliseconds since it was asked for. */
export const shown = (element = document.documentElement) => (element.dataset.shown ??= String(performance.now()));

/** How a run stands: in words, and in a colour that only repeats them. */
export const state = (status) => h("span", { class: `state ${status}` }, status);

export const called = (run) => run.name || run.method;
/** A metric in four decimals; what is too large or too small for them, in powers of ten. */
export function score(value) {
  if (typeof value !== "number") return "–";
  const size = Math.abs(value);
  return size >= 1e5 || (size > 0 && size < 5e-5) ? value.toExponential(2).replace(/e([+-])(\d)$/, "e$10$2") : value.toFixed(4);
}
export const whole = (value) => (typeof value === "number" ? value.toLocaleString("en") : "–");
const METRICS = { r2: "R²", auc: "AUC", f1: "F1", rmse: "RMSE", mae: "MAE" };
export const words = (text) => METRICS[text] || String(text).replaceAll("_", " ");

export function span(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

export function ago(moment) {
  const seconds = (Date.now() - Date.parse(moment)) / 1000;
  return Number.isFinite(seconds) ? `${span(seconds)} ago` : "–";
}

const PREFIXES = ["n", "µ", "m", "", "k", "M", "G", "T", "P", "E"];
const PREFIXED = ["B", "J", "FLOPs"]; // seconds have none, and what is counted is written in full

/** Virtual seconds, as everywhere: hours from 10,000 s on. */
function seconds(value) {
  if (value < 999.5) return `${Number(value.toPrecision(3))} s`;
  return value < 1e4 ? `${whole(Math.round(value))} s` : `${Number((value / 3600).toPrecision(4)).toLocaleString("en")} h`;
}

/** A number with its unit, in the same words as on the command line and in the report. */
export function amount(value, unit) {
  if (typeof value !== "number") return "–";
  if (unit === "s") return seconds(value);
  if (!PREFIXED.includes(unit)) return `${Number(value.toFixed(1)).toLocaleString("en")} ${unit}`.trim();
  if (value === 0) return `0 ${unit}`;
  let step = Math.min(6, Math.max(-3, Math.floor(Math.log10(Math.abs(value)) / 3)));
  if (Number((value / 1000 ** step).toPrecision(3)) >= 1000 && step < 6) step += 1;
  return `${Number((value / 1000 ** step).toPrecision(3))} ${PREFIXES[step + 3]}${unit}`.trim();
}

/** How far a run is: a bar if an end is known. */
export function progress(run) {
  const version = run.version ?? 0;
  const text = run.rounds ? `${whole(version)} / ${whole(run.rounds)}` : whole(version);
  const bar = run.rounds
    ? svg("svg", { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: 100, height: 1, class: "of" }),
      svg("rect", { width: (100 * Math.min(version, run.rounds)) / run.rounds, height: 1, class: `done ${run.status}` }))
    : null;
  return h("span", { class: "progress" }, h("span", { class: "number" }, text), bar);
}

const LEAST = 0.05; // that the height of a small curve stands for, where values are shares

/** A small curve, between its own least and greatest value; but small changes of a share look small. */
export function spark(values, label, share = false) {
  const width = 96, height = 24, edge = 2;
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (values.length < 2) return picture;
  const low = Math.min(...values), between = Math.max(...values) - low;
  const range = Math.max(between, share ? LEAST : 0) || 1, least = low - (range - between) / 2;
  const points = values.map((value, i) => [
    edge + ((width - 2 * edge) * i) / (values.length - 1),
    height - edge - ((height - 2 * edge) * (value - least)) / range,
  ].map((x) => x.toFixed(1)));
  picture.append(svg("polyline", { points: points.map((p) => p.join(",")).join(" ") }));
  const [x, y] = points.at(-1);
  picture.append(svg("circle", { cx: x, cy: y, r: 1.8 }));
  return picture;
}
