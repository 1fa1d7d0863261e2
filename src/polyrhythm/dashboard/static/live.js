// How a run goes at this moment: who is at work, its log, and what it asks of the machine.
import { amount, ask, h, span, spark, whole } from "./page.js";

const EVERY = 2000; // milliseconds between two looks
const LONGEST = 400000; // characters of a log that a page keeps

export class Live {
  constructor(id) {
    this.id = id;
    this.next = null;
    this.running = null;
    this.busy = false;
    this.work = h("p", { class: "dim" });
    this.clients = h("ul", { class: "at-work", "aria-label": "Clients at work" });
    this.load = h("dl", { class: "made load" });
    this.text = h("pre", { class: "log", tabindex: 0, "aria-label": "Log" });
    this.follow = h("input", { type: "checkbox", id: "follow" });
    this.follow.checked = true;
    this.log = h("details", {}, h("summary", {}, "Log"), h("div", { class: "tick" }, this.follow, h("label", { for: "follow" }, "Follow")), this.text);
    this.element = h("section", { "aria-labelledby": "h-live", hidden: true }, h("h2", { id: "h-live" }, "As it runs"), this.work, this.clients, this.load, this.log);
    setInterval(() => { if (this.running && !document.hidden) this.look(); }, EVERY);
  }

  /** How the run stands now; a last look is taken when it has ended. */
  show(status) {
    const before = this.running;
    this.running = status === "running";
    if (before === null) this.log.open = this.running;
    if (before !== this.running) this.look();
  }

  async look() {
    if (this.busy) return;
    this.busy = true;
    try {
      const found = await ask("/api/live", { run: this.id, ...(this.next === null ? {} : { from: this.next }) });
      this.next = found.next;
      this.who(found.now);
      this.machine(found.load);
      if (found.log) this.append(found.log);
      this.log.hidden = !this.text.textContent;
      this.element.hidden = this.log.hidden && !found.now && !found.load.length;
    } catch {
      // The page says elsewhere that the server does not answer.
    } finally {
      this.busy = false;
    }
  }

  who(now) {
    this.work.hidden = this.clients.hidden = !now || !this.running;
    if (this.work.hidden) return;
    const late = now.wall === null ? 0 : Date.now() / 1000 - now.wall;
    const when = now.time === null ? "" : ` at ${amount(now.time, "s")} of virtual time`;
    this.work.textContent = `${whole(now.many)} ${now.many === 1 ? "client is" : "clients are"} at work${when}${late > 5 ? `, for ${span(late)} here` : ""}`;
    const more = now.many - now.clients.length;
    this.clients.replaceChildren(
      ...now.clients.map(({ client, version, since }) => h("li", { class: "tag", title: `since ${amount(since, "s")} of virtual time, on version ${whole(version)}` },
        `client ${client}`, now.time !== null && now.time > since ? h("span", { class: "dim" }, ` for ${amount(now.time - since, "s")}`) : null)),
      ...(more > 0 ? [h("li", { class: "dim" }, `and ${whole(more)} more`)] : []));
  }

  machine(load) {
    if (!load.length) return;
    const [, cores, bytes] = load.at(-1);
    const of = (values, label, now) => h("div", {}, h("dt", {}, label), h("dd", {}, now), h("dd", {}, spark(values, `${label} over ${span(load.at(-1)[0])}, now ${now}`)));
    this.load.replaceChildren(
      of(load.map((sample) => sample[1]), "processor", `${cores.toFixed(2)} cores`),
      of(load.map((sample) => sample[2]), "memory", amount(bytes, "B")),
      h("div", {}, h("dt", {}, "over"), h("dd", {}, span(load.at(-1)[0]))));
  }

  append(text) {
    this.text.append(text); // as text: nothing of it is ever markup
    if (this.text.textContent.length > LONGEST) this.text.textContent = this.text.textContent.slice(-LONGEST / 2);
    if (this.follow.checked) this.text.scrollTop = this.text.scrollHeight;
  }
}
