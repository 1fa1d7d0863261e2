// Figures on a page: drawn when they come into view, and given new data while their runs go on.
import { ask, h, onTheme, shown, theme } from "./page.js";
import { explorable, watched } from "./exploring.js";
import { fitted } from "./fitting.js";
import { Reading } from "./reading.js";

const MOST = 2; // at the same moment
const LEAST = 1500; // milliseconds between two looks at one figure
const MANY = 1500; // marks, from where a browser is slow to draw each as an element

/** Loads Vega when the first figure is wanted. */
let vega = null;
const loaded = () => (vega ??= import("/static/vega.js").then(() => window.vegaEmbed));

class Picture {
  constructor(about, settings, exploring) {
    this.about = about;
    this.settings = settings;
    this.exploring = exploring;
    this.seen = false;
    this.stale = true;
    this.next = 0;
    this.heard = { role: "img", "aria-label": `${about.title}. ${about.about}` };
    this.frame = h("div", { class: "frame", ...this.heard });
    this.stage = h("div", { class: "stage" }, this.frame);
    this.reading = new Reading(this.stage, about, (span) => exploring.span(span));
    this.note = h("p", { class: "dim", role: "status" });
    this.all = h("button", { type: "button", class: "quiet", hidden: true, "aria-label": `Reset zoom of ${about.title}`, onclick: () => exploring.span(null) }, "Reset zoom");
    const take = (kind, made) => h("button", { type: "button", class: "quiet", "aria-label": `${about.title} as ${kind}`, onclick: () => this.take(kind, made) }, kind);
    this.tools = h("div", { class: "tools", hidden: true },
      take("SVG", async (view) => new Blob([await view.toSVG()], { type: "image/svg+xml" })),
      take("PNG", async (view) => { const canvas = await view.toCanvas(2); return new Promise((done) => canvas.toBlob(done)); }),
      take("CSV", async () => new Blob([asCsv(this.data, about.along ? exploring.shown() : null)], { type: "text/csv" })),
      this.all);
    this.element = h("figure", { id: `figure-${about.name}` }, this.stage, h("figcaption", {}, about.about), this.tools, this.note);
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
      this.element.classList.toggle("broad", "hconcat" in specification || specification.columns > 1);
      const width = Math.max(220, Math.round(this.frame.clientWidth));
      const shape = JSON.stringify([specification, Object.keys(data), width]);
      if (this.view && shape === this.shape) await this.renew(data);
      else await this.anew(embed, specification, data, width);
      this.shape = shape;
      this.data = data;
      this.reading.renew(data);
      this.all.hidden = !(this.about.along && this.exploring.shown());
      this.tools.hidden = false;
      this.note.textContent = "";
    } catch (error) {
      this.note.textContent = error.found ?? String(error);
    }
    this.next = performance.now() + Math.max(LEAST, 4 * (performance.now() - begun));
  }

  async anew(embed, specification, data, width) {
    const spec = { ...explorable(fitted(specification, width), this.about), datasets: data };
    const marks = Object.values(data).reduce((sum, rows) => sum + rows.length, 0);
    // `ast`: expressions are interpreted, since the page's policy forbids to compile them.
    const tooltip = this.reading.reads(spec, data) ? () => {} : { disableDefaultStyle: true };
    const options = { ast: true, actions: false, renderer: marks > MANY ? "canvas" : "svg", defaultStyle: false, tooltip };
    this.stage.style.minHeight = `${this.stage.offsetHeight}px`; // so that nothing jumps meanwhile
    const result = await embed(this.frame, spec, options);
    this.stage.style.minHeight = "";
    // The frame is the picture; its parts are not for whoever hears it.
    for (const part of this.frame.children) part.setAttribute("aria-hidden", "true");
    this.frame.removeAttribute("aria-roledescription");
    for (const [name, text] of Object.entries(this.heard)) this.frame.setAttribute(name, text);
    this.view?.finalize();
    this.view = result.view;
    this.reading.over(this.view, spec);
    watched(this.view, spec, this.exploring);
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

/** All rows behind a figure that are to be seen, each once, with the number of their set where there are several. */
function asCsv(data, span) {
  const seen = new Set(); // a band has the rows of its line, with another lower edge at most
  const fresh = ({ low, ...row }) => seen.size < seen.add(JSON.stringify(row)).size;
  const within = (row) => !span || typeof row.x !== "number" || (span[0] <= row.x && row.x <= span[1]);
  const order = Object.values(data).sort((a, b) => ("n" in (b[0] ?? {})) - ("n" in (a[0] ?? {})));
  const sets = order.map((rows) => rows.filter((row) => within(row) && fresh(row))).filter((rows) => rows.length);
  const rows = sets.flatMap((set, i) => set.map((row) => (sets.length > 1 ? { set: i + 1, ...row } : row)));
  const columns = [...new Set(rows.flatMap(Object.keys))];
  // Text that begins like a formula would be one in a spreadsheet, and control characters act on terminals.
  const plain = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f]/g, "\ufffd").replace(/^(?=\s*[=+@-])/, "'");
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : typeof value === "string" ? plain(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows.map((row) => columns.map((column) => row[column]))].map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

/** How figures are looked at that cannot be explored: as they are. */
const WHOLE = { settings: (_, given) => given, span() {}, shown: () => null, hide() {}, element: [] };

/** All figures that apply. `settings` gives what a figure is asked for with. */
export class Gallery {
  constructor(settings, exploring = WHOLE) {
    this.settings = (about) => exploring.settings(about, settings(about));
    this.exploring = exploring;
    exploring.changed = () => this.renew(true);
    exploring.printed = () => this.print();
    this.pictures = [];
    this.wanted = new Set(); // of those that say nothing
    this.busy = 0;
    this.flat = h("p", { class: "dim flat" });
    this.grid = h("div", { class: "gallery" });
    this.element = h("div", {}, exploring.element, this.grid, this.flat);
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
    const found = await ask("/api/figures", parameters);
    const offered = found.filter((about) => !about.flat || this.wanted.has(about.name));
    const left = found.filter((about) => !offered.includes(about));
    const anyway = (about) => h("button", { type: "button", class: "quiet link", "aria-label": `draw ${about.title} all the same`, onclick: () => this.want(about.name, parameters) }, about.title);
    this.flat.replaceChildren(...(left.length ? ["Left out, since they would say nothing else: ", ...left.flatMap((about, i) => [i ? "; " : "", anyway(about), ` (${about.flat})`]), "."] : []));
    const known = new Map(this.pictures.map((picture) => [picture.about.name, picture]));
    this.pictures = offered.map((about) => known.get(about.name) ?? new Picture(about, this.settings, this.exploring));
    for (const picture of this.pictures) {
      if (known.has(picture.about.name)) continue;
      picture.element.picture = picture;
      this.watch.observe(picture.element);
    }
    const elements = this.pictures.map((picture) => picture.element);
    if (elements.length !== this.grid.children.length || elements.some((element, i) => element !== this.grid.children[i])) this.grid.replaceChildren(...elements);
    return offered;
  }

  /** Shows a figure that was left out, where it stands among the others: often far above what asked for it. */
  async want(name, parameters) {
    this.wanted.add(name);
    await this.offer(parameters);
    this.pictures.find((picture) => picture.about.name === name)?.element.scrollIntoView({ block: "center" });
  }

  /** Draws all there is, on paper's colours, before it is printed. */
  async print() {
    const root = document.documentElement, before = root.dataset.theme;
    const dress = (name) => {
      if (name) root.dataset.theme = name;
      else delete root.dataset.theme;
      document.dispatchEvent(new Event("themechange"));
    };
    dress("light");
    while (this.busy) await new Promise((done) => setTimeout(done, 50));
    for (const picture of this.pictures) await picture.draw();
    window.print();
    dress(before);
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
