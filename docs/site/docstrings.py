"""What our docstrings have beyond Google's style, made plain to mkdocstrings; `mkdocs.yml` names this file.

- `low, high: text` under Args or Attributes explains each of these names.
- A paragraph of `>>>` lines is an example, wherever it stands.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SEVERAL = re.compile(r"^(?P<indent> +)(?P<names>\w+(?:, \w+)+):(?P<text>.*(?:\n(?P=indent) .*)*)", re.MULTILINE)
_SECTION = re.compile(r"^(?:Args|Attributes):\n(?:(?: .*)?\n)*(?: .*)?", re.MULTILINE)
_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))(?P<lines>>>> .*(?:\n(?!\n).+)*)")


class Plain(griffe.Extension):
    """Rewrites docstrings before they are taken apart."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Hook of griffe, called for each thing that has been read."""
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)


def plain(docstring: str) -> str:
    """The docstring with one name to an entry, and fenced examples."""
    named = _SECTION.sub(lambda section: _SEVERAL.sub(_one_by_one, section.group()), docstring)
    return _EXAMPLE.sub(r"```pycon\n\g<lines>\n```", named)


def _one_by_one(entry: re.Match[str]) -> str:
    return "\n".join(f"{entry['indent']}{name}:{entry['text']}" for name in entry["names"].split(", "))
