"""A run and a comparison as they are given to users: their records, which can be drawn and shown in notebooks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from polyrhythm.base.consent import in_python
from polyrhythm.base.errors import UserError, check_kind
from polyrhythm.base.plain import plain
from polyrhythm.runs.comparison import ComparedRuns
from polyrhythm.runs.database import damaged_run, damaged_runs
from polyrhythm.runs.deleting import delete
from polyrhythm.runs.labelling import label, labels_of
from polyrhythm.runs.labels import Change
from polyrhythm.runs.recorded import RecordedRun

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from polyrhythm.models.catalogue import Builder
    from polyrhythm.results.plots import Plots
    from polyrhythm.results.using import Made


@final
class Run(RecordedRun):
    """One run of an output folder. Reads the record anew at each use, so a run that goes on shows what it has.

        run = Run.open("20260301-1425", "runs")   # an id, its unique beginning, or a name
        run.history["test_accuracy"].max()
        run.plot.accuracy(save="accuracy.png")
        model.load_state_dict(run.weights("best"))

    Args:
        folder: the output folder.
        row: of the run, as `read_runs` gives it.
    """

    _made: Made | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in alphabetical order."""
        return labels_of(self.folder, self.id).tags

    @property
    def note(self) -> str:
        """What its owner notes of it: `run.note = "diverged with lr 1"`, and `""` for nothing."""
        return labels_of(self.folder, self.id).note

    @note.setter
    def note(self, text: str) -> None:
        self._label(Change(note=text))

    @property
    def is_archived(self) -> bool:
        """Whether lists leave it out."""
        return labels_of(self.folder, self.id).archived is not None

    @property
    def is_pinned(self) -> bool:
        """Whether it is the baseline of its folder."""
        return labels_of(self.folder, self.id).pinned

    def tag(self, *add: str, remove: Sequence[str] = ()) -> None:
        """Adds and removes tags.

        Args:
            add: tags that it has from now on.
            remove: tags that it has no longer.

        Raises:
            UserError: a tag that is none, or a record that may only be read.
        """
        self._label(Change(add=add, remove=(remove,) if isinstance(remove, str) else remove))

    def rename(self, name: str) -> None:
        """Gives it another name; `""` for the one that it began with. Its record and its digests stay as they are.

        Raises:
            UserError: a name that is none, or a record that may only be read.
        """
        self._label(Change(name=name))
        self._known = {**self._known, "called": name or self.first_name}

    def archive(self, *, undo: bool = False) -> None:
        """Has lists leave it out, until that is undone. Nothing is deleted, and by its id it is found as before.

        Raises:
            UserError: a record that may only be read.
        """
        self._label(Change(archived=not undo))

    def delete(self) -> None:
        """Removes it for good: rows, labels, weights and checkpoints.

        Raises:
            UserError: it goes on, or a record that may only be read.
        """
        delete(self.folder, [self.id])

    def pin(self, *, undo: bool = False) -> None:
        """Makes it the baseline of its folder, in place of any other: comparisons begin with its method.

        Raises:
            UserError: a record that may only be read.
        """
        self._label(Change(pinned=not undo))

    def _label(self, change: Change) -> None:
        label(self.folder, [self.id], change)

    def model(
        self,
        which: Literal["final", "best"] = "final",
        *,
        model: nn.Module | Builder | None = None,
        trust: Sequence[str] = (),
    ) -> nn.Module:
        """The model with the weights of the last or of the best version, in evaluation mode.

        Args:
            which: version.
            model: the module, or what builds it, where the run was made from one in Python by another process.
            trust: modules of your own that may be imported to build it, such as ("nets",).

        Raises:
            UserError: no weights, a model that is not known here, or weights of another one.
        """
        from polyrhythm.models.low_rank import for_weights
        from polyrhythm.models.weights import load_weights  # which loads torch, and lists of runs need none
        from polyrhythm.results.using import Use

        if model is None and self._made is not None:
            made = self._made()
        else:
            made = Use.read(self.path).made(model, in_python(trust))
        weights = self.weights(which)
        return load_weights(for_weights(made, weights), weights).eval()

    def adapter(
        self,
        path: Path | str,
        which: Literal["final", "best"] = "final",
        *,
        model: nn.Module | Builder | None = None,
        trust: Sequence[str] = (),
    ) -> Path:
        """The folder with the adapter of the last or of the best version, which is written in peft's own form.

        It holds adapter_config.json and adapter_model.safetensors, which `peft.PeftModel.from_pretrained` puts on the
        base model, and a run begins with as `initial`: of models by peft, and of those that `with_lora` has adapted.

        Args:
            path: the folder, made if need be.
            which, model, trust: as for `model`.

        Raises:
            UserError: the model has no adapter, or as `model` does.
        """
        from polyrhythm.models.adapter_files import save_adapter

        return save_adapter(self.model(which, model=model, trust=trust), Path(path))

    def predict(
        self,
        inputs: Any,
        which: Literal["final", "best"] = "final",
        *,
        probabilities: bool = False,
        model: nn.Module | Builder | None = None,
        trust: Sequence[str] = (),
    ) -> np.ndarray:
        """What the model says of new rows, which become what it reads as the training data did.

            run.predict(pandas.read_csv("new.csv"))   # array(['yes', 'no', …])

        Args:
            inputs: raw rows, as they were given to `arrays` or `table`, a DataFrame of a table; items of a `dataset`
                as the model reads them; of samples of several arrays a mapping or a tuple of arrays, or a list of such
                samples. Of data made of texts (`text`, `roles`, `sites`, `stackoverflow_tags`, `shakespeare`) a list of
                texts, or a DataFrame, a dict of columns or a list of dicts with the columns that the texts had.
            which, model, trust: as for `model`.
            probabilities: of each class or tag, [n, C], in place of labels.

        Returns:
            A label of your own for each row; of multilabel data whether each tag is there, [n, C]; for a regression
            the numbers. Of texts and a language model each text's perplexity, exp of the mean loss of the tokens that
            are asked for, NaN where none is; of tokens the likeliest token after each place.

        Raises:
            UserError: rows that are not like the training data's.
        """
        from polyrhythm.results.predicting import Predicting
        from polyrhythm.results.using import Use

        use = Use.read(self.path)
        if isinstance(inputs, (str, Path)):
            raise UserError(
                f"inputs = {str(inputs)!r}, a text",
                expected="rows: a DataFrame, a dict of columns, or an array",
                why="how a file is to be read has to be said",
                fix=f"run.predict(pandas.read_csv({str(inputs)!r})), or polyrhythm predict --data {inputs}"
                if use.texts is None
                else "run.predict([text]) for one text",
            )
        predicting = Predicting(use, inputs)
        predicting.by(self.model(which, model=model, trust=trust))
        return predicting.probabilities() if probabilities else predicting.labels()

    def evaluate(
        self,
        data: Any,
        which: Literal["final", "best"] = "final",
        *,
        model: nn.Module | Builder | None = None,
        trust: Sequence[str] = (),
    ) -> dict[str, float]:
        """The loss and metrics of the task on labelled data.

        Args:
            data: (inputs, targets), raw as for `predict`; a DataFrame of a table with the target column; or a
                `Collection`, whose test set is meant, scaled as the run's own data were.
            which, model, trust: as for `model`.

        Returns:
            Numbers by name. Metrics and a loss of your own are left out, with a warning: a record has no functions.

        Raises:
            UserError: data that are not like the training data.
        """
        from polyrhythm.results.using import Use, metrics

        return metrics(Use.read(self.path), self.model(which, model=model, trust=trust), data)

    @property
    def plot(self) -> Plots:
        """Every figure that has something to show of this run, as an Altair chart: `plot.accuracy(save="a.png")`."""
        from polyrhythm.results.plots import Plots  # which loads Altair

        return Plots([self])

    def __repr__(self) -> str:
        from polyrhythm.results.notebook import run_line

        return run_line(self)

    def _repr_html_(self) -> str:
        from polyrhythm.results.notebook import run_html

        return run_html(self)


def remember(run: Run, made: Made) -> Run:
    """A run that was carried out in this process, with what makes its model."""
    run._made = made
    return run


@final
class Comparison(ComparedRuns[Run]):
    """What several methods gave, and what it cost them, over their seeds.

        found = pr.compare("runs")
        found.table(to=0.75, at_time=600)
        found.plot.costs(save="costs.png")

    Runs with the same configuration but for the seed are one method. Of two runs with the same seed the later counts.

        print(found)                                     # results, differences, and what a reader should know
        found.settings                                   # what differs between the methods
        pr.compare("runs", group_by="recipe.batch")      # rows are values of a setting

    Args:
        runs: in any order; methods come in the order of their first runs, values by size.
        group_by: the dotted key of a setting; then its values take the place of methods.
        baseline: the method that the others are compared with; None for the first.

    Raises:
        UserError: nothing to compare, runs that are judged by different metrics, no such setting, or no such method.
    """

    @property
    def plot(self) -> Plots:
        """Every figure that has something to show of these runs: `plot.accuracy(against="time")`, `plot.costs()`."""
        from polyrhythm.results.plots import Plots

        runs = [run for members in self.methods.values() for run in members]
        return Plots(runs, group_by=self.group_by, baseline=self.baseline)

    @property
    def verdict(self) -> str:
        """A sentence on which method ends highest on the test set, and whether it is shown to be better."""
        from polyrhythm.results.verdict import verdict

        return verdict(self)

    def __repr__(self) -> str:
        from polyrhythm.results.notebook import comparison_line

        return comparison_line(self)

    def __str__(self) -> str:
        from polyrhythm.results.in_text import comparison_text

        return plain(comparison_text(self))

    def _repr_html_(self) -> str:
        from polyrhythm.results.notebook import comparison_html

        return comparison_html(self)


def compare(
    runs: Sequence[Run] | Path | str = "runs", *, group_by: str | None = None, baseline: str | None = None
) -> Comparison:
    """Puts runs side by side, seeds of one method together.

    Args:
        runs: the runs, or a folder with them.
        group_by: the dotted key of a setting, such as "recipe.optimiser.lr"; then its values take the place of methods.
        baseline: the method that the others are compared with; None for the first.

    Raises:
        UserError: nothing to compare, runs that are judged by different metrics, no such setting, or no such method.
    """
    if isinstance(runs, (Path, str)):
        return Comparison(whole_runs(runs), group_by=group_by, baseline=baseline)
    check_kind("runs", runs, Sequence, "[run, other], or the folder that they are in")
    for run in runs:
        check_kind("one of the runs", run, Run, "pr.Run.open('night')")
    return Comparison(runs, group_by=group_by, baseline=baseline)


def whole_runs(folder: Path | str) -> list[Run]:
    """The runs of a folder, without those in its archive; warns of those whose row is damaged.

    Raises:
        UserError: there is no run database, it cannot be read, or all rows are damaged.
    """
    runs = Run.all(folder)
    errors = [damaged_run(Path(folder), run_id, damage) for run_id, damage in damaged_runs(Path(folder)).items()]
    if errors and not runs:
        raise errors[0]
    for error in errors:
        warnings.warn(f"{error.found}: it is left out", stacklevel=3)
    return runs
