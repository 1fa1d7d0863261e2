"""The command line. Only here do names in text become things."""

from __future__ import annotations


def main() -> None:
    """Runs the command line with the arguments of this process."""
    from polyrhythm.cli.app import app
    from polyrhythm.cli.encoding import write_in_any_encoding

    write_in_any_encoding()
    app()
