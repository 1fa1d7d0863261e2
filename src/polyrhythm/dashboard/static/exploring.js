// How figures are looked at: a part of the axis, logarithms, smoothing, seeds, methods. All of it stands in the address.
import { addressed, h, svg, theme } from "./page.js";

const WINDOWS = [1, 3, 5, 9, 15, 25, 51, 101];
const PATIENCE = 250; // milliseconds after the last turn of a wheel
const WHEEL = "wheel![event.ctrlKey || event.metaKey || event.altKey]"; // the wheel alone scrolls the page
const DRAG = "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!";

const asked = () => new URLSearchParams(location.search);
const finite = (text) => (text !== null && text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : null);
/** Five digits: what is read, typed and sent. */
const short = (value) => Number(value.toPrecision(5));

/** What was chosen, and the controls for it. `changed` is called when figures have to be drawn anew. */
export class Exploring {
  constructor(across, { seeds = false } = {}) {
    this.changed = () => {};
    this.printed = () => print();
    const query = asked(), ends = [finite(query.get("from")), finite(query.get("to"))];
    this.ends = ends[0] !== null && ends[1] !== null && ends[0] < ends[1] ? ends : null;
    this.hidden = new Set(query.getAll("hide"));
    this.found = [];
    const number = (id, label) => h("input", { type: "number", step: "any", id, "aria-label": label, placeholder: id === "from" ? "start" : "end", onchange: () => this.typed() });
    this.from = number("from", "Axis from");
    this.to = number("to", "Axis to");
    const box = (id, label, checked) => {
      const input = h("input", { type: "checkbox", id, checked, onchange: () => this.chosen() });
      return [input, h("label", { class: "box" }, input, label)];
    };
    const log = query.get("log") ?? "";
    const [x, xBox] = box("log-x", "log x", log.includes("x"));
    const [y, yBox] = box("log-y", "log y", log.includes("y"));
    const [single, singleBox] = box("seeds", "single seeds", query.get("seeds") === "1");
    this.x = x, this.y = y, this.seeds = single;
    singleBox.hidden = !seeds;
    const usual = WINDOWS.includes(Number(query.get("smooth"))) ? query.get("smooth") : "1";
    this.smooth = h("select", { id: "smooth", onchange: () => this.chosen() }, WINDOWS.map((window) => h("option", { value: window, selected: String(window) === usual }, window === 1 ? "none" : `mean of ${window}`)));
    this.reset = h("button", { type: "button", class: "quiet", onclick: () => this.restore() }, "Reset");
    this.link = h("button", { type: "button", class: "quiet", onclick: () => this.copy() }, "Copy link");
    this.address = h("input", { readonly: true, hidden: true, "aria-label": "Address of this view" });
    this.methods = h("div", { class: "methods-shown", role: "group", "aria-label": "Methods shown", hidden: true });
    this.element = h("div", { class: "exploring" },
      h("div", { class: "controls", role: "group", "aria-label": "How figures are looked at" },
        h("span", { class: "span" }, "axis ", this.from, " to ", this.to),
        xBox, yBox,
        h("label", { class: "box" }, "smoothing", this.smooth),
        singleBox, this.reset, this.link, this.address,
        h("button", { type: "button", class: "quiet", onclick: () => this.printed() }, "Print")),
      this.methods,
      h("p", { class: "dim hint" }, "Drag over curves to zoom in, Shift + drag to move, Ctrl + wheel to zoom; arrow keys read values."));
    across.addEventListener("change", () => this.span(null, false)); // numbers of another axis
    this.show();
  }

  /** The part of the axis that is shown; null for all. */
  shown() {
    return this.ends;
  }

  /** What a figure is asked for with. */
  settings(about, base) {
    const found = { ...base };
    if (Array.isArray(found.run)) found.run = this.runs(found.run);
    if (!about.curved) return found;
    const log = (about.along && this.x.checked ? "x" : "") + (this.y.checked ? "y" : "");
    if (log) found.log = log;
    if (this.smooth.value !== "1") found.smooth = this.smooth.value;
    if (this.seeds.checked) found.seeds = 1;
    if (this.ends && about.along) [found.from, found.to] = this.ends;
    return found;
  }

  /** Those of some runs whose methods are shown. */
  runs(ids) {
    const away = new Set(this.found.filter(({ method }) => this.hidden.has(method)).flatMap((method) => method.runs));
    return ids.filter((id) => !away.has(id));
  }

  /** Says which methods there are: with their `runs`, `colour` and `dash`. */
  know(methods) {
    this.found = methods;
    // All hidden would be an empty page.
    if (methods.every(({ method }) => this.hidden.has(method))) this.hidden.clear();
    this.methods.hidden = methods.length < 2;
    const focused = document.activeElement?.dataset?.method;
    this.methods.replaceChildren(...methods.map((method) => h("button", {
      type: "button", class: "quiet", "data-method": method.method, "aria-pressed": String(!this.hidden.has(method.method)), onclick: () => this.hide(method.method),
    }, swatch(method), method.method)));
    if (focused !== undefined) [...this.methods.children].find((button) => button.dataset.method === focused)?.focus();
  }

  /** Hides a method, or shows it again; the last one stays. */
  hide(name) {
    if (!this.found.some(({ method }) => method === name)) return;
    if (!this.hidden.delete(name)) {
      if (this.found.filter(({ method }) => !this.hidden.has(method)).length < 2) return;
      this.hidden.add(name);
    }
    this.know(this.found);
    this.keep();
  }

  /** Shows a part of the axis. */
  span(ends, anew = true) {
    this.ends = ends && ends.map(short);
    if (this.ends && !(this.ends[0] < this.ends[1])) this.ends = null;
    this.keep(anew);
  }

  typed() {
    const [from, to] = [finite(this.from.value), finite(this.to.value)];
    // The end that was left out is where the figures end; its field stays empty for whoever goes on to it.
    const [least, most] = this.extent ?? [from ?? to, to ?? from];
    const ends = [from ?? least, to ?? most];
    const wrong = ends[0] >= ends[1] && (from !== null || to !== null);
    this.to.setCustomValidity(wrong ? "more than where the axis begins" : "");
    if (wrong) this.to.reportValidity();
    else if (from === null && to === null) this.span(null);
    else {
      this.span(ends);
      if (from === null) this.from.value = "";
      if (to === null) this.to.value = "";
    }
  }

  chosen() {
    this.keep();
  }

  restore() {
    this.hidden.clear();
    this.x.checked = this.y.checked = this.seeds.checked = false;
    this.smooth.value = "1";
    this.know(this.found);
    this.span(null);
  }

  /** Writes all of it into the address, and into the controls. */
  keep(anew = true) {
    const log = (this.x.checked ? "x" : "") + (this.y.checked ? "y" : "");
    addressed({
      from: this.ends && String(this.ends[0]), to: this.ends && String(this.ends[1]), log,
      smooth: this.smooth.value === "1" ? null : this.smooth.value, seeds: this.seeds.checked ? "1" : null, hide: [...this.hidden],
    });
    this.show();
    if (anew) this.changed();
  }

  show() {
    [this.from.value, this.to.value] = this.ends ?? ["", ""];
    this.to.setCustomValidity("");
    this.reset.disabled = !(this.ends || this.hidden.size || this.x.checked || this.y.checked || this.seeds.checked || this.smooth.value !== "1");
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.link.textContent = "Copied";
      setTimeout(() => (this.link.textContent = "Copy link"), 2000);
    } catch { // a browser that lets no page write there
      this.address.hidden = false;
      this.address.value = location.href;
      this.address.select();
    }
  }
}

/** A method's line, as figures have it. */
export function swatch({ colour, dash }) {
  const line = svg("line", { x1: 1, y1: 6, x2: 23, y2: 6, "stroke-width": 4, stroke: colour[theme()], "stroke-dasharray": dash && dash.join() !== "1,0" ? dash.join(" ") : null });
  return svg("svg", { class: "stroke", viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" }, line);
}

/** Every chart in a specification that has marks. */
export function* units(part) {
  for (const key of ["hconcat", "vconcat", "concat", "layer"]) for (const inner of part[key] ?? []) yield* units(inner);
  if (part.mark) yield part;
}

/** The same specification with what a reader can do to it: zoom with a wheel, move, and hide methods by the legend. */
export function explorable(spec, about) {
  const all = [...units(spec)];
  const add = (unit, parameter) => (unit.params = [...(unit.params ?? []), parameter]);
  const told = (channel) => channel?.field === "method" && channel.legend !== null;
  const coloured = all.find((unit) => told(unit.encoding?.color) || told(unit.encoding?.fill));
  if (coloured) add(coloured, { name: "picked", select: { type: "point", fields: ["method"] }, bind: "legend" });
  if (about.curved && about.along && !spec.hconcat && !spec.vconcat && !spec.concat && all.length) {
    add(all[0], { name: "zoomed", select: { type: "interval", encodings: ["x"], zoom: WHEEL, translate: DRAG, clear: false }, bind: "scales" });
    for (const unit of all) unit.mark = { ...(typeof unit.mark === "string" ? { type: unit.mark } : unit.mark), clip: true };
  }
  return spec;
}

/** Takes note of what a reader does in a figure. */
export function watched(view, spec, exploring) {
  const names = new Set([...units(spec)].flatMap((unit) => (unit.params ?? []).map(({ name }) => name)));
  if (names.has("picked")) {
    view.addSignalListener("picked", (_, value) => {
      const [name] = value?.method ?? [];
      if (name !== undefined) setTimeout(() => exploring.hide(name));
    });
  }
  if (!names.has("zoomed")) return;
  const domain = () => view.scale("x").domain().map(Number);
  if (!exploring.shown()) exploring.extent = domain();
  let timer;
  view.addSignalListener("zoomed", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const [from, to] = domain(), [least, most] = exploring.extent ?? [-Infinity, Infinity];
      const ends = [Math.max(from, least), Math.min(to, most)];
      exploring.span(ends[0] <= least && ends[1] >= most ? null : ends);
    }, PATIENCE);
  });
}
