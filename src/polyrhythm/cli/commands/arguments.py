"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Out = Annotated[str | None, typer.Option("--out", help="Folder of the record.  [default: runs]", show_default=False)]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning, or its name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]
To = Annotated[float | None, typer.Option("--to", help="Also what it took until the headline metric was so good.")]
Set = Annotated[
    Literal["test", "validation"], typer.Option("--on", help="The set that results are of: test or validation.")
]
Trusted = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        help="A module of yours with a model or parts, such as nets, that may be imported: it runs with your rights. "
        "May be repeated.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key: --set evaluation.every=5. May be repeated."),
]
Baseline = Annotated[
    str | None, typer.Option("--baseline", help="The method to compare the others with.  [default: the first]")
]
GroupBy = Annotated[
    str | None,
    typer.Option(
        "--group-by", metavar="KEY", help="Rows are values of this setting, such as recipe.optimiser.lr, over seeds."
    ),
]
