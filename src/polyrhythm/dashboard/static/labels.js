// What is said of runs: shown everywhere, and changed where the dashboard may.
import { ask, h, trouble } from "./page.js";

/** Tags of a run, and whether it is the baseline or in the archive. */
export function chips({ tags, baseline, archived }) {
  const marks = [baseline ? h("span", { class: "tag mark" }, "baseline") : null, archived ? h("span", { class: "tag mark" }, "archived") : null];
  const found = [...marks.filter(Boolean), ...tags.map((tag) => h("span", { class: "tag" }, tag))];
  return found.length ? h("span", { class: "tags" }, found) : null;
}

/** The labels of one run, and a form to change them where that may be. */
export class Labels {
  constructor(id, control) {
    this.id = id;
    this.place = h("div");
    this.said = h("p", { class: "said" });
    const input = (name, label, about = {}) => {
      this[name] = h("input", { id: `label-${name}`, autocomplete: "off", ...about, oninput: () => { this.dirty = true; } });
      return h("div", {}, h("label", { for: `label-${name}` }, label), this[name]);
    };
    this.text = h("textarea", { id: "label-note", rows: 3, maxlength: 20000, oninput: () => { this.dirty = true; } });
    const tick = (name, label) => {
      this[name] = h("input", { type: "checkbox", id: `label-${name}`, onchange: () => { this.dirty = true; } });
      return h("div", { class: "tick" }, this[name], h("label", { for: `label-${name}` }, label));
    };
    this.form = control ? h("details", { class: "labels" }, h("summary", {}, "Name, tags, note"),
      h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); this.save(); } },
        input("name", "Name", { maxlength: 200 }), input("tags", "Tags, with commas between"),
        h("div", { class: "wide" }, h("label", { for: "label-note" }, "Note"), this.text),
        tick("archived", "In the archive: left out of lists"), tick("baseline", "Baseline of this folder"),
        h("button", { type: "submit" }, "Save"))) : null;
    this.element = h("div", {}, this.place, this.said, this.form);
    this.dirty = false;
  }

  show({ name, first_name, labels }) {
    this.known = labels;
    this.first = first_name;
    this.place.replaceChildren(...[chips(labels)].filter(Boolean));
    this.said.textContent = labels.note;
    this.said.hidden = !labels.note;
    if (!this.form || this.dirty) return;
    this.name.value = name;
    this.tags.value = labels.tags.join(", ");
    this.text.value = labels.note;
    this.archived.checked = Boolean(labels.archived);
    this.baseline.checked = labels.baseline;
  }

  async save() {
    const tags = this.tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
    const name = this.name.value.trim();
    const change = {
      add: tags.filter((tag) => !this.known.tags.includes(tag)), remove: this.known.tags.filter((tag) => !tags.includes(tag)),
      name: name === this.first ? "" : name, note: this.text.value, archived: this.archived.checked, pinned: this.baseline.checked,
    };
    if (change.archived === Boolean(this.known.archived)) delete change.archived; // since when it is
    try {
      await ask("/api/label", {}, { method: "POST", body: JSON.stringify({ runs: [this.id], ...change }) });
      this.dirty = false;
    } catch (error) {
      this.place.replaceChildren(trouble(error));
    }
  }
}
