// The studies of a folder: how far each is.
import { $, ask, h, progress, score, shown, span, start, state, tell, trouble, whole, words } from "./page.js";

const main = $("main");
start();
const place = h("div");
const body = h("tbody");
main.append(h("div", { class: "title" }, h("h1", {}, "Studies"), h("a", { href: "/" }, "Runs")), place,
  h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Table of studies" },
    h("table", { class: "studies" }, h("caption", { class: "unseen" }, "Studies of this folder"),
      h("thead", {}, h("tr", {}, ["Study", "State", "Trials", "Failed", "Best", "Compared runs", "Left"].map((label, i) => h("th", { scope: "col", class: i > 2 ? "number" : null }, label)))), body)));

function line(study) {
  if (study.problem) return h("tr", {}, h("th", { scope: "row" }, study.name), h("td", { colspan: 6, class: "reason" }, study.problem));
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `/study?${new URLSearchParams({ study: study.study })}` }, study.name), study.study === study.name ? null : h("span", { class: "dim" }, ` ${study.study}`)),
    h("td", {}, state(study.state)),
    h("td", {}, study.trials ? progress({ version: study.over, rounds: study.trials, status: study.state }) : "none"),
    h("td", { class: "number" }, whole(study.failed)),
    h("td", { class: "number" }, study.best === null ? "–" : `${score(study.best)} ${words(study.headline)}`),
    h("td", { class: "number" }, study.wanted ? `${whole(study.compared)} of ${whole(study.wanted)}` : whole(study.compared)),
    h("td", { class: "number" }, study.left === null ? "–" : span(study.left)));
}

async function show() {
  try {
    const answer = await ask("/api/studies");
    tell(answer.folder);
    place.replaceChildren();
    body.replaceChildren(...(answer.studies.length ? answer.studies.map(line) : [h("tr", {}, h("td", { colspan: 7, class: "none" }, "No studies yet. They appear here as soon as one starts: polyrhythm study"))]));
    shown();
  } catch (error) {
    place.replaceChildren(trouble(error));
  }
}
await show();
setInterval(() => { if (!document.hidden) show(); }, 5000);
