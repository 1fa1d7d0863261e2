"""A path, an address or a name of the Hub in the place of a data set: which source reads it, and how one says so."""

from __future__ import annotations

import re
from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.data import SOURCES

_TABLES = (".csv", ".tsv", ".txt", ".dat", ".data", ".parquet", ".pq", ".feather", ".xlsx", ".xls", ".json", ".jsonl")
_ARRAYS = (".npz", ".npy", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".hdf5", ".mat")
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".tar", ".tgz")
_PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_WORD = re.compile(r"[^\s()\[\],|='\"]+")
_LOOKED_AT = 1000  # files of a folder


def refuse_path(text: str) -> None:
    """Goes on if a text may be the name of a data set, with or without settings.

    Raises:
        UserError: it is a file, a folder, an address, or a data set of the Hub.
    """
    text = text.strip()
    if key := _source(text):
        found, fix = key
        raise UserError(
            f"{text!r}, {found}",
            expected="a data set, as `polyrhythm data` lists them: what reads a file has its path among its settings",
            why="how it is to be read, and what is to be predicted, has to be said",
            fix=fix,
        )


def _source(text: str) -> tuple[str, str] | None:
    """What a text is, and what to do; None if it may be a name."""
    if text.replace("-", "_") in {name.replace("-", "_") for name in SOURCES}:
        return None  # and not a folder that happens to be called so
    if re.match(r"(hf|huggingface)\b", text) and re.fullmatch(r"\w+(:?/{0,2}[\w./-]+)?", text):
        name = re.sub(r"^\w+[:/]*(datasets/)?", "", text)
        return "a data set of the Hugging Face Hub", f"write {_hub(name or 'owner/name')}"
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", text):
        read = of_file(Path(re.split(r"[?#]", text)[0].rpartition("/")[2] or "data.csv"))
        return "an address", f"download it first, and then {read}"
    path = Path(text.replace("\\", "/"))
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError):  # a name that is too long, or no path
        is_folder = is_file = False
    plain, bare = _WORD.fullmatch(text) is not None, "(" not in text
    if is_folder and bare:
        return "a folder", _of_folder(path)
    if is_file or (bare and {suffix.lower() for suffix in path.suffixes} & {*_TABLES, *_ARRAYS, *_PACKED}):
        return "a file" if is_file else "a file that is not there", f"write {of_file(path)}"
    if plain and _HUB.fullmatch(text) and ":" not in text:
        return "no file here, but perhaps a data set of the Hugging Face Hub", f"write {_hub(text)}"
    if plain and "/" in text:
        return "a path at which there is nothing", "check it; table(path=…, target=…) and npz(path=…) read files"
    return None


def of_file(path: Path) -> str:
    """How a data set in a file is written."""
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if ".npz" in suffixes:
        return f"npz(path={_quoted(path)})"
    if suffixes & {*_ARRAYS}:
        return f"npz(path={_quoted(path.with_suffix('.npz'))}), once it is saved with numpy.savez (docs/start.md)"
    return f"table(path={_quoted(path)}, target=…), where target is the column to predict"


def _of_folder(path: Path) -> str:
    files = [file for file, _ in zip(path.rglob("*"), range(_LOOKED_AT), strict=False) if file.is_file()]
    if any(file.suffix.lower() in _PICTURES for file in files):
        return f"write image-folder(path={_quoted(path)})"
    for file in sorted(files):
        if {suffix.lower() for suffix in file.suffixes} & {*_TABLES, ".npz"}:
            return f"give one of its files, such as {of_file(file)}"
    return "give the file in it that has the data: table(path=…, target=…) or npz(path=…)"


def _hub(name: str) -> str:
    return f'hub(name="{name}"), which needs pip install "polyrhythm[hub]"'


def _quoted(path: Path) -> str:
    return f'"{path}"' if re.search(r"[\s()\[\],|=']", str(path)) else str(path)
