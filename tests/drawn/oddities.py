"""What is odd about tables, and what must become of each."""

from __future__ import annotations

from dataclasses import replace

from drawn.case import Draw
from drawn.columns import Column, Table


def empty_cells(table: Table, draw: Draw, n: int) -> None:
    """Cells without anything, or with a mark that stands for it."""
    column = draw.choice(table.all())
    if "missing" in table.how or table.must == "refuse" or column.name == table.how.get("dropped"):
        return
    mark = draw.choice(["", "", "NA", "?", "-999"])
    rows = draw.sample(range(n), draw.randrange(1, 4))
    if table.form != "text":
        mark = ""
    if mark and column.text:
        return
    values, cells = list(column.values), list(column.cells)
    for row in rows:
        values[row], cells[row] = None, mark
    _replace(table, column, replace(column, values=values, cells=cells))
    table.odd.append(f"{mark!r} in {column.name}")
    table.how["missing"] = [
        row for row in range(n) if row in rows or any(mark and c.cells[row].strip() == mark for c in table.all())
    ]
    if draw.random() < 0.6:
        table.settings |= {"missing": "drop", "missing_values": [mark] if mark else []}
        table.say.append("rows with empty cells")
    elif mark != "-999":
        table.must = "refuse"
    else:
        table.how["missing"] = ()
        if column in (table.target, table.client) or any(isinstance(v, str) for v in column.read):
            table.must = ""
        table.odd.pop()
        _replace(table, next(c for c in table.all() if c.name == column.name), column)


def _replace(table: Table, old: Column, new: Column) -> None:
    if old is table.target:
        table.target = new
    elif old is table.client:
        table.client = new
    else:
        table.columns[table.columns.index(old)] = new


def ragged(table: Table, draw: Draw, n: int) -> None:
    """Rows wider or narrower than the header."""
    if table.form != "text":
        return
    row, more = draw.randrange(n), draw.choice([True, False])

    def spoil(body: list[list[str]]) -> None:
        cells = body[row % len(body)]
        cells.append("1") if more else cells.pop()

    if not more and len(table.all()) < 3:
        return
    table.how.setdefault("spoil", []).append(spoil)
    table.must = "refuse"
    table.odd.append("ragged")


def twice(table: Table, draw: Draw, n: int) -> None:
    """Two columns of one name."""
    column = draw.choice(table.all())
    other = draw.choice([column.name, f" {column.name} "])
    if table.form == "text":
        table.how["header"] = lambda names: [*names, other]
        table.how.setdefault("spoil", []).append(lambda body: [row.append("1") for row in body])
    elif table.form == "frame" or other != column.name:
        table.how["twice"] = ((column.name, other),)
    else:
        return
    table.must = "refuse"
    table.odd.append(f"{other!r} twice")


def nameless(table: Table, draw: Draw, n: int) -> None:
    """A column without a name."""
    if table.form != "text" or "header" in table.how:
        return
    counts = draw.random() < 0.5
    table.how["header"] = lambda names: ["", *names]
    table.how.setdefault("spoil", []).append(
        lambda body: [row.insert(0, str(i) if counts else str(i % 2)) for i, row in enumerate(body)]
    )
    table.odd.append("nameless")
    if not counts:
        table.must = "refuse"
    else:
        table.say.append("has no name")


def commas(table: Table, draw: Draw, n: int) -> None:
    """Fractions with commas, said or not."""
    numbers = [c for c in table.columns if not c.text and any("." in cell for cell in c.cells)]
    if table.form != "text" or not numbers:
        return
    for column in [c for c in table.all() if not c.text or c is table.target]:
        if all(isinstance(v, (float, bool, int)) for v in column.values):
            _replace(table, column, replace(column, cells=[cell.replace(".", ",") for cell in column.cells]))
    table.odd.append("decimal commas")
    table.how["separator"] = draw.choice([";", "\t"])
    if draw.random() < 0.6:
        table.settings["decimal"] = ","


def infinite(table: Table, draw: Draw, n: int) -> None:
    """A number that is none."""
    numbers = [c for c in table.columns if not c.text and isinstance(c.values[0], float)]
    if not numbers or "missing" in table.how:
        return
    column, row = draw.choice(numbers), draw.randrange(n)
    value, cell = draw.choice([(float("inf"), "1e400"), (-1e300, "-1e300"), (float("inf"), "inf")])
    values, cells, read = list(column.values), list(column.cells), list(column.read)
    values[row], cells[row], read[row] = value, cell, value
    _replace(table, column, replace(column, values=values, cells=cells, read=read))
    table.must = "refuse"
    table.odd.append(f"{cell} in {column.name}")


def named_ids(table: Table, draw: Draw, n: int) -> None:
    """A text of its own in each row."""
    values = [f"id {i}" for i in range(n)]
    table.columns.append(Column("ident", values, values, values))
    table.odd.append("texts of their own")
    if draw.random() < 0.5:
        table.settings["drop"] = draw.choice([["ident"], "ident"])
        table.how["dropped"] = "ident"


def encoded(table: Table, draw: Draw, n: int) -> None:
    """Another encoding, said or not."""
    if table.form != "text":
        return
    table.odd.append("encoding")
    table.settings["encoding"] = draw.choice(["utf-16", "utf-32", "utf-8", "utf-16-le"])


def counted(table: Table, draw: Draw, n: int) -> None:
    """A column that counts rows: a feature like any other, but said."""
    values = list(range(n))
    table.columns.append(Column("row", values, [str(v) for v in values], [float(v) for v in values]))
    table.odd.append("counts rows")


ODDITIES = (empty_cells, ragged, twice, nameless, commas, infinite, named_ids, encoded, counted)
