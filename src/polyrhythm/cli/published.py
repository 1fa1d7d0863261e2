"""`polyrhythm data NAME`: where a data set is published, and whether a copy is the official one."""

from __future__ import annotations

from pathlib import Path

from polyrhythm.base.errors import UserError, unknown
from polyrhythm.cli.output import Screen
from polyrhythm.data.published import PUBLISHED, Published, compared


def show_published(name: str, path: Path | None) -> None:
    """Where to get a data set, what its checksums are, and how one runs it.

    Args:
        name: of the data set.
        path: of a copy, to be compared; None for none.

    Raises:
        UserError: no such data set, or files that are not the official ones.
    """
    key = name.replace("_", "-")
    if key not in PUBLISHED:
        raise unknown("published data set", name, PUBLISHED)
    data, screen = PUBLISHED[key], Screen()
    for label, text in _lines(key, data):
        screen.print(f"{label:<10} {text}", markup=False, highlight=False, soft_wrap=True)
    if path is not None:
        found = list(compared(data, path))
        for file, same in found:
            said = "the official one" if same else "another one than the official one"
            screen.print(f"{file}: {said}", markup=False, highlight=False, soft_wrap=True)
        if not found or not all(same for _, same in found):
            raise UserError(
                f"{path} is not {key} as it is published",
                expected="files whose SHA-256 are those above",
                why="figures of other data are not comparable with anybody's",
                fix=f"get them from {data.where}",
            )


def _lines(name: str, data: Published) -> list[tuple[str, str]]:
    """What there is to say, each with a label."""
    sums = [("SHA-256", f"{digest}  {_file(file, data)}") for file, digest in data.sums.items()]
    path = f"{name}(path=FOLDER)"
    natural = f'--partition "by_column(column={data.column})" --local-test natural'
    run = data.run.replace("--method ", '--method "') + '"'
    return [
        ("clients", f"{data.clients} (column {data.column})"),
        ("files", data.where),
        ("licence", data.licence),
        *sums,
        ("checked", data.known_from),
        ("tests", data.split),
        ("run", f'polyrhythm run --data "{path}" {natural} {run}'),
    ]


def _file(file: str, data: Published) -> str:
    return "of what `LC_ALL=C sha256sum` prints of all of them" if file == data.files else file
