"""What commands print: text for people, and JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any, final

from rich.console import Console

from polyrhythm.cli.guard import silence
from polyrhythm.runs.json_text import to_json


@final
class Screen(Console):
    """A console that goes silent when its reader leaves. A run goes on then: its record is what counts."""

    def note(self, text: str) -> None:
        """Something that a reader of the results should know."""
        self.print(f"note: {text}", style="yellow", markup=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Sends what follows nowhere, where rich would end the process."""
        self.quiet = True
        silence()


def print_json(value: Any) -> None:
    """One line of JSON, in ASCII, so that it is the same in every encoding."""
    sys.stdout.write(json.dumps(json.loads(to_json(value))) + "\n")
    sys.stdout.flush()
