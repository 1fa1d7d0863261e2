"""A figure as a page of its own, with everything inside: it asks no network, and fits a phone."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FITTING = Path(__file__).with_name("fitting.js")
"""The script that fits a specification to the room there is; the dashboard uses it, too."""

_HINT = "Click a method in the legend to hide it. Drag to move, Ctrl or ⌘ and the wheel to zoom, double-click for all."
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{scheme}">
<title>{title} – Polyrhythm</title>
<style>
body {{ margin: 0; background: {paper}; color: {ink}; font: 14px/1.45 system-ui, "Liberation Sans", sans-serif; }}
main {{ max-width: 1000px; margin: 0 auto; padding: 12px; }}
#figure {{ margin: 0; overflow-x: auto; touch-action: pan-y; }}
#figure.vega-embed {{ display: block; padding: 0; }}
h1 {{ position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }}
p {{ font-size: 13px; margin: 4px 10px; }}
#vg-tooltip-element {{ max-width: 90vw; }}
#vg-tooltip-element td.value {{ max-width: none; }}
@media print {{ .hint {{ display: none; }} }}
</style>
</head>
<body>
<main><h1>{title}</h1><figure id="figure" aria-label="{title}"></figure>{hint}</main>
<script>{bundle}</script>
<script type="module">
{fitting}
const specification = {specification};
const place = document.getElementById("figure");
let wide = 0;
async function draw() {{
  const width = Math.min(place.clientWidth, 1000);
  if (Math.abs(width - wide) < 8) return;
  wide = width;
  const options = {{ actions: {{ export: true, source: false, compiled: false, editor: false }}, theme: undefined }};
  await vegaEmbed(place, fitted(specification, width), {{ ...options, tooltip: {{ theme: "{scheme}" }} }});
  for (const part of place.querySelectorAll("svg, canvas")) part.setAttribute("aria-hidden", "true");
  for (const [name, text] of [["role", "figure"], ["aria-label", {label}]]) place.setAttribute(name, text);
  place.removeAttribute("aria-roledescription");
  place.querySelector("summary")?.setAttribute("aria-label", "Save this figure");
}}
draw();
addEventListener("resize", draw);
</script>
</body>
</html>
"""


def page(specification: Mapping[str, Any]) -> str:
    """The page of a figure.

    Args:
        specification: Vega-Lite's, whole.
    """
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # whose types ask for the snippet that may be left out
    above = specification.get("title")
    title = above.get("text", "") if isinstance(above, Mapping) else above or ""
    ground = specification.get("config", {}).get("background", "#FFFFFF")
    dark = int(ground[1:3], 16) < 128
    return _PAGE.format(
        title=html.escape(str(title) or "Figure"),
        label=json.dumps(str(title) or "Figure").replace("<", "\\u003c"),
        scheme="dark" if dark else "light",
        paper=ground,
        ink="#ECECEC" if dark else "#1A1A1A",
        hint=f'<p class="hint">{_HINT}</p>' if "params" in specification or _selects(specification) else "",
        bundle=str(bundle()).replace("</script", "<\\/script"),
        fitting=FITTING.read_text(encoding="utf-8").replace("export ", ""),
        # No text of a run can end the script that it stands in.
        specification=json.dumps(specification).replace("<", "\\u003c"),
    )


def _selects(specification: Any) -> bool:
    """Whether a reader can do something with it."""
    if isinstance(specification, Mapping):
        parts = (part for key, part in specification.items() if key != "datasets")
        return "params" in specification or any(map(_selects, parts))
    return isinstance(specification, list) and any(map(_selects, specification))
