// One crosshair over all lines of a figure, with every method's value at its nearest recorded place; and a part of the
// axis chosen by dragging. For pointers, fingers and arrow keys.
import { h, score } from "./page.js";
import { units } from "./exploring.js";

const DRAGGED = 6; // pixels, below which it was a click
const GAP = 12; // pixels between the line and what is read

const label = (row) => row.method ?? row.group ?? row.strategy ?? "";
const place = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 });
const written = (value) => (typeof value === "number" && Math.abs(value) >= 10 ? place(Number(value.toPrecision(5))) : score(value));

/** The panels of a specification that have lines to read, with what their scales and groups are called in Vega. */
function* panels(part, prefix = "") {
  for (const key of ["hconcat", "vconcat", "concat"]) {
    for (const [i, inner] of (part[key] ?? []).entries()) yield* panels(inner, `${prefix}concat_${i}_`);
    if (part[key]) return;
  }
  const found = [...units(part)];
  const x = found.map((unit) => unit.encoding?.x).find((channel) => channel?.field === "x");
  if (x) yield { prefix, title: x.title ?? "x", sources: [...new Set([part, ...found].map((unit) => unit.data?.name).filter(Boolean))] };
}

/** Which of some sorted rows is nearest to a place. */
function nearest(rows, x) {
  let low = 0, high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].x < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - rows[low - 1].x <= rows[low].x - x ? low - 1 : low;
}

export class Reading {
  constructor(stage, about, chosen) {
    this.stage = stage;
    this.chosen = chosen;
    this.along = about.along && about.curved;
    this.panels = [];
    this.line = h("div", { class: "crosshair", hidden: true });
    this.brush = h("div", { class: "brush", hidden: true });
    this.box = h("div", { class: "readout", hidden: true, role: "status" });
    stage.append(this.line, this.brush, this.box);
    stage.addEventListener("pointermove", (event) => this.moved(event));
    stage.addEventListener("pointerdown", (event) => this.pressed(event));
    stage.addEventListener("pointerup", (event) => this.released(event));
    stage.addEventListener("pointercancel", () => this.cancel());
    // A finger that is lifted leaves what it has shown.
    stage.addEventListener("pointerleave", (event) => this.start || event.pointerType === "touch" || this.leave());
    stage.addEventListener("dblclick", () => this.along && this.here && chosen(null));
    stage.addEventListener("keydown", (event) => this.typed(event));
    stage.addEventListener("blur", () => this.leave());
    this.title = about.title;
  }

  /** Whether there are lines to read; then nothing else needs to be said about single points. */
  reads(spec, data) {
    const found = [...panels(spec)].filter(({ sources }) => sources.some((name) => data[name]?.some((row) => "n" in row)));
    this.stage.classList.toggle("reads", found.length > 0);
    if (found.length) for (const [name, value] of Object.entries({ tabindex: "0", role: "group", "aria-label": `${this.title}: arrow keys read its values` })) this.stage.setAttribute(name, value);
    return found.length > 0;
  }

  over(view, spec) {
    this.view = view;
    this.leave();
    this.panels = [...panels(spec)];
  }

  renew(data) {
    for (const panel of this.panels) {
      panel.lines = new Map();
      // A band has the rows of the lines that have one; the lines have all.
      const told = panel.sources.map((name) => data[name] ?? []).filter((rows) => rows.some((row) => "n" in row));
      for (const row of told.sort((a, b) => b.length - a.length)[0] ?? []) {
        if (!panel.lines.has(label(row))) panel.lines.set(label(row), []);
        panel.lines.get(label(row)).push(row);
      }
    }
    this.panels = this.panels.filter((panel) => panel.lines.size);
  }

  /** Where a panel lies on the page: in pixels of the stage, and how many of them one of the picture's is. */
  place(panel) {
    const picture = this.stage.querySelector("svg.marks, canvas.marks");
    const [inner, outer] = [picture.getBoundingClientRect(), this.stage.getBoundingClientRect()];
    const size = inner.width / (Number(picture.getAttribute("width")) / (picture.tagName === "CANVAS" ? devicePixelRatio : 1) || inner.width);
    const padding = this.view.padding();
    let [x, y] = this.view.origin();
    x += padding.left ?? padding;
    y += padding.top ?? padding;
    let group = this.view.scenegraph().root.items[0], path = "";
    for (const part of panel.prefix.match(/concat_\d+_/g) ?? []) {
      path += part;
      group = group.items.find((mark) => mark.name === `${path}group`).items[0];
      x += group.x;
      y += group.y;
    }
    const left = inner.left - outer.left + x * size, top = inner.top - outer.top + y * size;
    return { left, top, width: group.width * size, height: group.height * size, size };
  }

  /** The panel under the pointer, and the number at its place on the axis. */
  at(event) {
    if (!this.view) return null;
    const outer = this.stage.getBoundingClientRect(), [x, y] = [event.clientX - outer.left, event.clientY - outer.top];
    for (const panel of this.panels) {
      const place = this.place(panel);
      if (x < place.left || x > place.left + place.width || y < place.top || y > place.top + place.height) continue;
      return { panel, place, x: Number(this.view.scale(`${panel.prefix}x`).invert((x - place.left) / place.size)) };
    }
    return null;
  }

  moved(event) {
    if (this.start) return this.drag(event);
    this.box.setAttribute("aria-live", "off");
    const here = this.at(event);
    if (here) this.read(here.panel, here.x);
    else this.leave();
  }

  pressed(event) {
    const here = this.at(event);
    this.here = here !== null;
    if (!here) return;
    this.moved(event);
    if (!this.along || event.button !== 0 || event.shiftKey || event.ctrlKey || event.metaKey) return;
    this.start = { ...here, clientX: event.clientX };
    this.stage.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const { place, clientX } = this.start, outer = this.stage.getBoundingClientRect().left;
    const inside = (x) => Math.min(Math.max(x - outer, place.left), place.left + place.width);
    const [from, to] = [inside(clientX), inside(event.clientX)].sort((a, b) => a - b);
    this.leave();
    this.brush.hidden = false;
    Object.assign(this.brush.style, { left: `${from}px`, width: `${to - from}px`, top: `${place.top}px`, height: `${place.height}px` });
    return [from, to];
  }

  released(event) {
    if (!this.start) return;
    const { panel, place } = this.start, [from, to] = this.drag(event), scale = this.view.scale(`${panel.prefix}x`);
    this.cancel();
    if (to - from >= DRAGGED) this.chosen([from, to].map((x) => Number(scale.invert((x - place.left) / place.size))));
  }

  cancel() {
    this.start = null;
    this.brush.hidden = true;
  }

  /** Arrow keys go from place to place, Page keys further, Home and End to the ends of what is shown. */
  typed(event) {
    const far = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this.leave();
    if (far === undefined || event.target !== this.stage || !this.panels.length) return;
    event.preventDefault();
    const [panel] = this.panels, [least, most] = this.view.scale(`${panel.prefix}x`).domain().map(Number);
    const all = [...new Set([...panel.lines.values()].flat().map((row) => row.x))].sort((a, b) => a - b);
    const places = all.filter((x) => least <= x && x <= most);
    if (!places.length) return;
    const now = this.last === undefined ? (far > 0 ? -1 : places.length) : nearest(places.map((x) => ({ x })), this.last);
    this.box.setAttribute("aria-live", "polite");
    this.read(panel, places[Math.min(places.length - 1, Math.max(0, now + far))]);
  }

  /** Shows the line at a place, and each method's values beside it. */
  read(panel, x) {
    this.last = x;
    const frame = this.place(panel), left = frame.left + frame.size * this.view.scale(`${panel.prefix}x`)(x);
    const colours = this.colours();
    const found = [...panel.lines].map(([name, rows]) => ({ name, row: rows[nearest(rows, x)] }));
    const near = found.map(({ row }) => row.x).sort((a, b) => Math.abs(a - x) - Math.abs(b - x))[0];
    const head = ["", "mean", "± sd", "n", "at"];
    const body = found.map(({ name, row }) => {
      const mark = h("span", { class: "swatch" });
      if (colours) mark.style.background = colours(name);
      // As it was recorded, also where the line is smoothed.
      const cells = [written(row.raw ?? row.y), written(row.sd), String(row.n ?? 1), row.x === near ? "" : place(row.x)];
      return h("tr", {}, h("th", { scope: "row" }, colours && name ? mark : null, name || "value"), cells.map((text) => h("td", { class: "number" }, text)));
    });
    this.box.replaceChildren(h("table", {},
      h("caption", {}, `${panel.title}: ${place(near)}`),
      h("thead", {}, h("tr", {}, head.map((text, i) => (i ? h("th", { scope: "col", class: "number" }, text) : h("td"))))),
      h("tbody", {}, body)));
    this.line.hidden = this.box.hidden = false;
    Object.assign(this.line.style, { left: `${left}px`, top: `${frame.top}px`, height: `${frame.height}px` });
    const room = this.stage.clientWidth, wide = this.box.offsetWidth;
    const right = left + GAP + wide <= room || left < room / 2;
    Object.assign(this.box.style, { left: `${Math.max(0, Math.min(room - wide, right ? left + GAP : left - GAP - wide))}px`, top: `${frame.top + 6}px` });
  }

  colours() {
    try {
      return this.view.scale("color");
    } catch {
      return null;
    }
  }

  leave() {
    this.line.hidden = this.box.hidden = true;
  }
}
