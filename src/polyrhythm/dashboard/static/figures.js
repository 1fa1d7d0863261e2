// Figures on a page: drawn when they come into view, and given new data while their runs go on.
import { ask, h, onTheme, shown, theme } from "./page.js";

const MOST = 2; // at the same moment
const LEAST = 1500; // milliseconds between two looks at one figure
const MANY = 1500; // marks, from where a browser is slow to draw each as an element
const NARROW = 620; // pixels
const LABELS = 90; // pixels that labels take beside a panel
const LEGEND = 230; // pixels of one entry
const COMPOSED = ["concat", "facet", "repeat"];

/** Loads Vega when the first figure is wanted. */
let vega = null;
const loaded = () => (vega ??= import("/static/vega.js").then(() => window.vegaEmbed));

class Picture {
  constructor(about, settings) {
    this.about = about;
    this.settings = settings;
    this.seen = false;
    this.stale = true;
    this.next = 0;
    this.frame = h("div", { class: "frame", role: "img", "aria-label": `${about.title}. ${about.about}` });
    this.note = h("p", { class: "dim", role: "status" });
    const take = (kind, made) => h("button", { type: "button", class: "quiet", "aria-label": `${about.title} as ${kind}`, onclick: () => this.take(kind, made) }, kind);
    this.tools = h("div", { class: "tools", hidden: true },
      take("SVG", async (view) => new Blob([await view.toSVG()], { type: "image/svg+xml" })),
      take("PNG", async (view) => { const canvas = await view.toCanvas(2); return new Promise((done) => canvas.toBlob(done)); }),
      take("CSV", async () => new Blob([asCsv(this.data)], { type: "text/csv" })));
    this.element = h("figure", { id: `figure-${about.name}` }, this.frame, h("figcaption", {}, about.about), this.tools, this.note);
  }

  /** Hands the picture, or the numbers behind it, to whoever wants to take them along. */
  async take(kind, made) {
    const address = URL.createObjectURL(await made(this.view));
    h("a", { href: address, download: `${this.about.name}.${kind.toLowerCase()}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  async draw() {
    this.stale = false;
    const begun = performance.now();
    try {
      const asked = { name: this.about.name, theme: theme(), ...this.settings(this.about) };
      const [embed, { specification, data }] = await Promise.all([loaded(), ask("/api/figure", asked)]);
      this.element.classList.toggle("broad", "hconcat" in specification);
      const width = Math.max(220, Math.round(this.frame.clientWidth));
      const shape = JSON.stringify([specification, Object.keys(data), width]);
      if (this.view && shape === this.shape) await this.renew(data);
      else await this.anew(embed, specification, data, width);
      this.shape = shape;
      this.data = data;
      this.tools.hidden = false;
      this.note.textContent = "";
    } catch (error) {
      this.note.textContent = error.found ?? String(error);
    }
    this.next = performance.now() + Math.max(LEAST, 4 * (performance.now() - begun));
  }

  async anew(embed, specification, data, width) {
    const spec = { ...fitted(specification, width), datasets: data };
    const marks = Object.values(data).reduce((sum, rows) => sum + rows.length, 0);
    // `ast`: expressions are interpreted, since the page's policy forbids to compile them.
    const options = { ast: true, actions: false, renderer: marks > MANY ? "canvas" : "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true } };
    const result = await embed(this.frame, spec, options);
    this.view?.finalize();
    this.view = result.view;
    this.names = result.vgSpec.data.map((source) => source.name);
    shown(this.element);
  }

  async renew(data) {
    for (const [name, rows] of Object.entries(data)) {
      if (this.names.includes(name)) this.view.change(name, this.view.changeset().remove(() => true).insert(rows));
    }
    await this.view.runAsync();
  }
}

/** All rows behind a figure, with the number of their set where there are several. */
function asCsv(data) {
  const sets = Object.values(data).filter((rows) => rows.length);
  const rows = sets.flatMap((set, i) => set.map((row) => (sets.length > 1 ? { set: i + 1, ...row } : row)));
  const columns = [...new Set(rows.flatMap(Object.keys))];
  // Text that begins like a formula would be one in a spreadsheet.
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "string" ? value.replace(/^(?=[=+@\t\r-])/, "'") : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows.map((row) => columns.map((column) => row[column]))].map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

/** Every legend that a specification speaks of. */
function* legends(part) {
  for (const [key, value] of Object.entries(part)) {
    if (value === null || typeof value !== "object") continue;
    if (key === "legend") yield value;
    else yield* legends(value);
  }
}

/** One chart takes the room there is. Charts side by side come under each other where there is too little. */
function fitted(specification, width) {
  const spec = structuredClone(specification);
  if (spec.hconcat && width < NARROW) {
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  }
  const panels = spec.vconcat ?? spec.hconcat;
  const room = spec.hconcat ? Math.min(420, width / spec.hconcat.length - LABELS) : width - LABELS;
  if (width < NARROW) for (const legend of legends(spec)) legend.columns = width < 2 * LEGEND ? 1 : 2;
  if (panels) {
    for (const part of panels) if (typeof part.width === "number") part.width = room;
  } else if (!COMPOSED.some((key) => key in spec) && typeof spec.width !== "object") {
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding", resize: true };
  }
  return spec;
}

/** All figures that apply. `settings` gives what a figure is asked for with. */
export class Gallery {
  constructor(settings) {
    this.settings = settings;
    this.pictures = [];
    this.busy = 0;
    this.element = h("div", { class: "gallery" });
    this.watch = new IntersectionObserver((entries) => {
      for (const entry of entries) entry.target.picture.seen = entry.isIntersecting;
      this.go();
    }, { rootMargin: "200px" });
    onTheme(() => this.renew(true));
    let timer;
    addEventListener("resize", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.renew(true), 200);
    });
    setInterval(() => this.go(), 250);
  }

  /** Shows those that the server offers; those that are there already stay. */
  async offer(parameters) {
    const offered = await ask("/api/figures", parameters);
    const known = new Map(this.pictures.map((picture) => [picture.about.name, picture]));
    this.pictures = offered.map((about) => known.get(about.name) ?? new Picture(about, this.settings));
    for (const picture of this.pictures) {
      if (known.has(picture.about.name)) continue;
      picture.element.picture = picture;
      this.watch.observe(picture.element);
    }
    const elements = this.pictures.map((picture) => picture.element);
    if (elements.some((element, i) => element !== this.element.children[i])) this.element.replaceChildren(...elements);
    return offered;
  }

  /** There are new data, or another look is wanted: then at once. */
  renew(now = false) {
    for (const picture of this.pictures) {
      picture.stale = true;
      if (now) picture.next = 0;
    }
    this.go();
  }

  go() {
    const time = performance.now();
    // Those that were never drawn first, else the first ones of a run that goes on would always come before the others.
    for (const picture of [...this.pictures].sort((a, b) => a.next - b.next)) {
      if (this.busy >= MOST || document.hidden) return;
      if (!picture.seen || !picture.stale || picture.drawing || time < picture.next) continue;
      this.busy += 1;
      picture.drawing = true;
      picture.draw().finally(() => {
        picture.drawing = false;
        this.busy -= 1;
        this.go();
      });
    }
  }
}
