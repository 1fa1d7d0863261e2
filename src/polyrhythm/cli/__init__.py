"""The command line. Only here do names in text become things."""

from __future__ import annotations


def main() -> None:
    """Runs the command line with the arguments of this process."""
    from polyrhythm.cli.encoding import open_what_is_closed, write_in_any_encoding

    open_what_is_closed()
    write_in_any_encoding()
    from polyrhythm.cli.app import app

    app(prog_name="polyrhythm")
