"""A report as one page, which needs no network and runs no script."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrhythm.base.plain import plain
from polyrhythm.figures import Subject
from polyrhythm.report.contents import Contents
from polyrhythm.report.pictures import left_out, pictures

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

_HERE = Path(__file__).parent
_BREAKS = re.compile(r"(?<=[.,=|])(?=[A-Za-z])|(?<=\w\()(?=[A-Za-z])")


def page(contents: Contents, told: Callable[[int, int], None] = lambda done, of: None) -> str:
    """The whole report. Whatever a run says is text in it, and the page's own policy lets no script run.

    Args:
        contents: what it says.
        told: hears how many figures are drawn of how many.
    """
    style = (_HERE / "page.css").read_text()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    subject = Subject(contents.runs, contents.group_by)
    return _template().render(
        contents=contents,
        pictures=list(pictures(subject, contents.on, baseline=contents.baseline, told=told)),
        left_out=left_out(subject),
        style=style,
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_HERE)
    found = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    found.filters |= {"breakable": _breakable, "stacked": _stacked}
    return found.get_template("page.html.jinja")


def _shown(value: Any) -> Any:
    """A value of the template; what is marked as safe is of another type than text."""
    return plain(value) if type(value) is str else value


def _breakable(text: str) -> Markup:
    """A text that may be broken behind a dot, a comma or the like, so that it never is within a word."""
    from markupsafe import Markup

    return Markup("<wbr>").join(_BREAKS.split(plain(text)))


def _stacked(text: str) -> Markup:
    """A number with its interval under it."""
    from markupsafe import Markup

    return Markup("<br>").join(plain(text).replace(" [", "\n[").split("\n"))
