// Fits a figure to the room there is. Of the dashboard, and inside every figure that is a page of its own.

const NARROW = 620; // pixels
const LABELS = 90; // pixels that labels take beside a panel
const USUAL = 560; // pixels of a panel, for which the columns of legends were counted
const LETTER = 6.2; // pixels, of what stands under a title
const BROAD = 560; // pixels of a panel beside others, at most
const THREE = 1000; // pixels that three panels beside each other need
const COMPOSED = ["concat", "hconcat", "vconcat", "facet", "repeat"];

/** Every legend that a specification speaks of. */
function* legends(part) {
  for (const [key, value] of Object.entries(part)) {
    if (value === null || typeof value !== "object" || key === "datasets") continue;
    if (key === "legend") yield value;
    else yield* legends(value);
  }
}

/** Gives every panel its width: `room` in all. */
function spread(part, room) {
  const beside = part.hconcat ?? part.concat;
  const panels = part.hconcat ?? part.vconcat ?? part.concat;
  if (!panels) {
    if (typeof part.width === "number") part.width = Math.max(120, Math.round(room - LABELS));
    return;
  }
  if (part.concat && part.columns === 2 && room >= THREE) part.columns = 3;
  const columns = part.hconcat ? panels.length : part.concat ? Math.min(panels.length, part.columns ?? panels.length) : 1;
  for (const panel of panels) spread(panel, beside ? Math.min(BROAD + LABELS, room / columns) : room);
}

/** Puts panels under each other that have no room beside each other. */
function stacked(part) {
  for (const panels of [part.hconcat, part.vconcat, part.concat]) panels?.forEach(stacked);
  if (part.concat) part.columns = 1;
  if (part.hconcat) {
    part.vconcat = part.hconcat;
    delete part.hconcat;
  }
}

/** Breaks what stands under or in a title where there is too little room for it. */
function broken(part, room) {
  for (const key of ["text", "subtitle"]) {
    if (!part.title || typeof part.title !== "object" || part.title[key] === undefined) continue;
    const most = Math.max(20, Math.floor(room / LETTER));
    part.title[key] = [part.title[key]].flat().flatMap((line) => {
      const found = [""];
      for (const word of String(line).split(" ")) {
        if (found.at(-1) && found.at(-1).length + word.length >= most) found.push("");
        found[found.length - 1] += (found.at(-1) ? " " : "") + word;
      }
      return found;
    });
  }
  for (const inner of part.hconcat ?? part.vconcat ?? part.concat ?? []) broken(inner, inner.width ?? room);
}

/** One chart takes the room there is. Charts side by side come under each other where there is too little. */
export function fitted(specification, width) {
  const spec = structuredClone(specification);
  if (width < NARROW) stacked(spec);
  for (const legend of legends(spec)) if (legend.columns) legend.columns = Math.max(1, Math.round((legend.columns * Math.min(width, USUAL)) / USUAL));
  if (COMPOSED.some((key) => key in spec)) spread(spec, width);
  else if (typeof spec.width !== "object") {
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding", resize: true };
  }
  broken(spec, width - LABELS / 2);
  return spec;
}
