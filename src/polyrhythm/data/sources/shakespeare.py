"""Shakespeare by speaking role: 80 characters in, the next one out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.keys import Keys
from polyrhythm.data.samples import WindowSamples
from polyrhythm.data.sources.files import content, corrupt, existing
from polyrhythm.data.text_reading import TextReading

REFERENCE = 'Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018; McMahan et al., 2017'
# LEAF's 80 symbols, so that models have the published number of parameters where the text has no others.
LEAF_SYMBOLS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"


class Text(NamedTuple):
    """One part of the data: all text in one string, and where windows of which role begin in it."""

    text: str
    starts: np.ndarray
    roles: Keys


def shakespeare(path: str | Path, *, length: int = 80, stride: int = 1) -> Collection:
    """Shakespeare's plays by speaking role, next-character prediction; each role is a natural client.

    Reads {"role": {"train": [speech, ...], "test": [speech, ...]}} as .json or .json.gz, whose speeches are joined by
    spaces within a role, or LEAF's own files (a folder with train/*.json and test/*.json, whose windows are taken as
    they are). Roles with too little text for one window are left out. Partition with `by_column(column="role")`.

    Args:
        path: the file, or LEAF's folder.
        length: characters of context.
        stride: characters between the starts of two windows; 1 predicts every character that has a full context.

    Raises:
        UserError: the file is of neither form.

    Reference: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018.
    """
    if length < 1 or stride < 1:
        raise UserError(
            f"shakespeare: length={length}, stride={stride}",
            expected="both at least 1",
            why="a window needs context, and the next one must begin later",
            fix="length=80, stride=1 is LEAF's task",
        )
    place = existing(path, what="a .json or .json.gz file by role, or LEAF's folder with train/ and test/")
    if place.is_dir():
        train, test = _leaf(place, "train", length), _leaf(place, "test", length)
    else:
        roles = _parsed(place)
        if (
            not isinstance(roles, dict)
            or not roles
            or not all(
                isinstance(r, dict) and all(_are_speeches(r.get(part)) for part in ("train", "test"))
                for r in roles.values()
            )
        ):
            raise corrupt(place, "is not a table of roles", '{"role": {"train": [speech, ...], "test": [...]}}')
        train, test = (_speeches(roles, part, length, stride) for part in ("train", "test"))
    if not len(train.starts) or not len(test.starts):
        raise corrupt(place, f"has no {length + 1} characters in a row", "roles with more text than one window")
    used = set(train.text) | set(test.text)
    symbols = sorted(LEAF_SYMBOLS) if used <= set(LEAF_SYMBOLS) else sorted(used)
    return Collection(
        name="shakespeare",
        task="next_character",
        classes=tuple(symbols),
        train=_windows(train, symbols, length),
        test=_windows(test, symbols, length),
        columns={"role": train.roles},
        test_columns={"role": test.roles},
        ordered_by="role",
        reference=REFERENCE,
        texts=TextReading(makes="end", columns=("text",), length=length, vocabulary=tuple(symbols)),
    )


def _are_speeches(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(speech, str) for speech in found)


def _windows(part: Text, symbols: list[str], length: int) -> WindowSamples:
    table = np.zeros(max(map(ord, symbols)) + 1, dtype=np.uint8 if len(symbols) <= 256 else np.int64)
    table[[ord(s) for s in symbols]] = np.arange(len(symbols))
    codes = table[np.frombuffer(part.text.encode("utf-32-le"), dtype=np.uint32)]
    return WindowSamples(torch.from_numpy(codes), torch.from_numpy(part.starts), length)


def _speeches(roles: Mapping[str, Mapping[str, list[str]]], part: str, length: int, stride: int) -> Text:
    texts, starts, owners, begin = [], [], [], 0
    names = sorted(roles)
    for number, name in enumerate(names):
        text = " ".join(roles[name][part])
        places = np.arange(begin, begin + len(text) - length, stride, dtype=np.int64)
        texts.append(text)
        starts.append(places)
        owners.append(np.full(len(places), number))
        begin += len(text)
    return Text("".join(texts), np.concatenate(starts), Keys(np.array(names), np.concatenate(owners)))


def _leaf(folder: Path, part: str, length: int) -> Text:
    files = sorted((folder / part).glob("*.json"))
    if not files:
        raise corrupt(folder, f"has no {part}/*.json", "LEAF's folder with train/ and test/")
    texts: list[str] = []
    owners: list[str] = []
    for file in files:
        users = _parsed(file)
        users = users.get("user_data") if isinstance(users, dict) else None
        if not isinstance(users, dict):
            raise corrupt(file, "has no user_data", "a file as LEAF writes it")
        for name in sorted(users):
            try:
                pairs = [(str(x), str(y)) for x, y in zip(users[name]["x"], users[name]["y"], strict=True)]
            except (KeyError, TypeError, ValueError):
                raise corrupt(file, f"has no x and y of one length for {name!r}", "a file as LEAF writes it") from None
            if any(len(x) != length or len(y) != 1 for x, y in pairs):
                raise corrupt(
                    file, f"has windows of other lengths for {name!r}", f"{length} characters and the next one"
                )
            texts.extend(x + y for x, y in pairs)
            owners.extend([name] * len(pairs))
    starts = np.arange(len(texts), dtype=np.int64) * (length + 1)
    return Text("".join(texts), starts, Keys.of(owners))


def _parsed(file: Path) -> Any:
    try:
        return json.loads(content(file))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are both of the first
        raise corrupt(file, f"is not JSON ({error})") from None
