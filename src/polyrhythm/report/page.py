"""A report as one page, which needs no network and runs no script."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.base.plain import plain
from polyrhythm.report.contents import Contents
from polyrhythm.report.pictures import pictures

if TYPE_CHECKING:
    from jinja2 import Template

_HERE = Path(__file__).parent


def page(contents: Contents) -> str:
    """The whole report. Whatever a run says is text in it, and the page's own policy lets no script run."""
    style = (_HERE / "page.css").read_text()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _template().render(
        contents=contents,
        pictures=list(pictures(contents.runs, contents.on)),
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_HERE)
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    ).get_template("page.html.jinja")


def _shown(value: Any) -> Any:
    """A value of the template; what is marked as safe is of another type than text."""
    return plain(value) if type(value) is str else value
