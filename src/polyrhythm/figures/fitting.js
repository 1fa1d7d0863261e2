// Fits a figure to the room there is. Of the dashboard, and inside every figure that is a page of its own.

const NARROW = 620; // pixels
const LABELS = 90; // pixels that labels take beside a panel
const LEGEND = 230; // pixels of one entry
const BROAD = 420; // pixels of a panel beside others
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

/** One chart takes the room there is. Charts side by side come under each other where there is too little. */
export function fitted(specification, width) {
  const spec = structuredClone(specification);
  if (width < NARROW) {
    stacked(spec);
    for (const legend of legends(spec)) legend.columns = width < 2 * LEGEND ? 1 : 2;
  }
  if (COMPOSED.some((key) => key in spec)) spread(spec, width);
  else if (typeof spec.width !== "object") {
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding", resize: true };
  }
  return spec;
}
