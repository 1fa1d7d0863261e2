"""The tables of a recorded run, as data frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from polyrhythm.base.errors import UserError
from polyrhythm.runs import spread
from polyrhythm.runs.frames import answers_frame, frame

if TYPE_CHECKING:
    import pandas as pd


class RecordedTables(ABC):
    """Base of `RecordedRun`: what was recorded of its versions, visits, clients and classes, read anew at each use."""

    folder: Path

    @property
    @abstractmethod
    def number(self) -> int:
        """Its number in the database of its folder."""

    @property
    @abstractmethod
    def clients(self) -> int:
        """Clients in its federation."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """The metric that "accuracy" stands for in the summary."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """What classes are called, in the order of their numbers; () where samples have none."""

    @property
    def history(self) -> pd.DataFrame:
        """One row per version. Metrics are columns such as `test_accuracy`, `validation_loss`, `clients_accuracy_mean`.

        `train_loss` is the loss of the local models while they train; `global_train_loss`, the global model's on a
        sample of all training data. The counters are cumulative.
        """
        return frame(self.folder, "versions", self.number).set_index("version")

    @property
    def visits(self) -> pd.DataFrame:
        """One row per client visit, by dispatch number; what mechanisms recorded is in columns `measures_...`."""
        return frame(self.folder, "visits", self.number).set_index("dispatch")

    @property
    def answers(self) -> pd.DataFrame:
        """One row per question of the server about who is there, with the clients that it was told, in order.

        `event` counts what the server heard, from 0, the start; `clients` is None for the question "all".
        """
        return answers_frame(self.folder, self.number)

    @property
    def events(self) -> pd.DataFrame:
        """One row per thing that the server heard, in order: `kind`, `number` (dispatch or client), and `time`."""
        return frame(self.folder, "events", self.number).set_index("event")

    @property
    def members(self) -> pd.DataFrame:
        """One row per client: `samples`, `test_samples`, `device` (its group), if it is `measured`, `unseen`, `there`.

        Unseen is a client that never trains. There is the share of the run's virtual time in which it was there, NaN
        until the run ends as planned. Of a federation of more than 10,000, only those whose own results are kept.
        """
        found = frame(self.folder, "clients", self.number).set_index("client")
        return found.astype({"measured": bool, "unseen": bool, "there": float})

    @property
    def heard(self) -> pd.DataFrame:
        """One row per client that holds data: `samples`, `there`, `updates`, and the newest result on its own test.

        `updates` counts those of its updates that went into a version, trained or sent in place of training; `there` is
        the share of the run's time in which it was there. The result is in a column of the headline metric and `loss`,
        NaN where it was not measured (`local_test`). Of a federation of more than 10,000, only those measured.
        """
        import pandas as pd

        from polyrhythm.runs.heard import heard

        found = heard(self.folder, self.number, self.clients)
        columns = {"samples": found.samples, "there": found.there, "updates": found.updates}
        columns |= {self.headline: found.scores, "loss": found.losses}
        return pd.DataFrame(columns, index=pd.Index(found.clients, name="client"))

    @property
    def samples_behind(self) -> pd.DataFrame:
        """The share of the federation's samples behind each version after the initial one: one row per version.

        `share` is of the clients whose updates went into it, `so_far` of those that were heard for it or before, which
        a method that remembers updates can still hold. Empty where not all clients are on record.
        """
        import pandas as pd

        from polyrhythm.runs.heard import Behind, behind, heard

        rows = behind(self.folder, self.number, heard(self.folder, self.number, self.clients))
        return pd.DataFrame(rows, columns=Behind._fields).set_index("version")

    @property
    def bias(self) -> dict[str, float | None]:
        """Numbers on who was heard, and how those are served who are seldom there; None for what is not on record.

        `never_heard` is the share of clients without any update in a version, `never_heard_samples` that of the samples
        they hold, `gini` the Gini coefficient of updates over clients, `samples_behind` the mean over versions of
        `samples_behind`. Of the newest version on clients' own tests: `loss_rare` and `score_rare` are means over the
        quarter of clients that was there least (heard least, where all were there alike), `loss_common` and
        `score_common` over the other end; `loss_by_availability` and `loss_by_participation` are Spearman's rank
        correlation of a client's loss with how long it was there, and with how often it was heard.
        """
        from polyrhythm.runs.heard import behind, heard, numbers

        held = heard(self.folder, self.number, self.clients)
        return numbers(held, behind(self.folder, self.number, held), "there" if held.varies("there") else "heard")

    @property
    def client_results(self) -> pd.DataFrame:
        """What each client that is measured got out of each evaluated version, on its own test: by version and client.

        The columns are the headline metric, NaN where it is undefined on a client's test, and `loss`; and `personal`,
        the headline metric of the model that the client uses, where that is another than the global one, NaN for
        versions of which it was not measured. Empty without own tests (`local_test`).
        """
        import pandas as pd

        found = spread.of_clients(self.folder, self.number)
        rows = [
            (version, client, score, loss)
            for version, scores, losses in found.versions
            for client, score, loss in zip(found.clients, scores, losses, strict=True)
        ]
        columns = ["version", "client", self.headline, "loss"]
        table = pd.DataFrame(rows, columns=columns).set_index(["version", "client"])
        if not found.personal:
            return table
        own = {(v, c): score for v, scores in found.personal for c, score in zip(found.clients, scores, strict=True)}
        return table.assign(personal=[own.get(place, float("nan")) for place in table.index])

    @property
    def class_results(self) -> pd.DataFrame:
        """What each evaluated version makes of each class of the test set, by version and class.

        The columns are `present`, how many test samples are of it, `right`, how many of them the model puts into it,
        and `accuracy`, their share. Empty where samples have no class, or several.
        """
        import pandas as pd

        names = self.classes
        rows = [
            (row.version, name, present, right, right / present if present else float("nan"))
            for row in spread.of_classes(self.folder, self.number, len(self.classes))
            for name, present, right in zip(names, row.present, row.right, strict=True)
        ]
        return pd.DataFrame(rows, columns=["version", "class", "present", "right", "accuracy"]).set_index(
            ["version", "class"]
        )

    def confusion(self, version: int | None = None) -> pd.DataFrame:
        """How many test samples of each class (rows) a version puts into each class (columns).

        Where an output is NaN a sample is put into none, so a row may add up to less than its samples.

        Args:
            version: which one; None for the last of which it was kept: of each with 20 classes or fewer, else of the
                last, up to 500 classes.

        Raises:
            UserError: none was kept of it.
        """
        import pandas as pd

        kept = {
            row.version: row.confusion
            for row in spread.of_classes(self.folder, self.number, len(self.classes))
            if row.confusion
        }
        if version is None and kept:
            version = max(kept)
        if version not in kept:
            raise UserError(
                f"no confusion matrix of {'any version' if version is None else f'version {version}'}",
                expected=f"one of {spread.spans(list(kept))}" if kept else "a run on samples with one class each",
                why="it is kept of evaluated versions with up to 20 classes, else of the last, up to 500 classes",
                fix="leave the version out" if kept else "record a run to its end on such data",
            )
        names, cells = list(self.classes), kept[version]
        assert cells is not None
        rows = [cells[i : i + len(names)] for i in range(0, len(cells), len(names))]
        return pd.DataFrame(rows, index=pd.Index(names, name="class"), columns=pd.Index(names, name="put into"))
