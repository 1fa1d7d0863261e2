"""The observer that keeps a run: its rows in the database, its weights as files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from polyrhythm.base.errors import RunFailed, UserError
from polyrhythm.runs import holes, naming, run_lock
from polyrhythm.runs.checkpointing import Keeper
from polyrhythm.runs.checkpoints import checkpoints, version_of
from polyrhythm.runs.database_writer import Cut, Writer
from polyrhythm.runs.disk_faults import PATIENCE, Patience, is_full
from polyrhythm.runs.files import safetensors_pieces, write_whole
from polyrhythm.runs.kept_weights import KeptWeights, with_base, without_base
from polyrhythm.runs.observer import Observer
from polyrhythm.runs.plan_row import digest_of, row_of
from polyrhythm.runs.records import (
    AnswerRecord,
    ClassResultsRecord,
    ClientRecord,
    ClientResultsRecord,
    EventRecord,
    ModelView,
    Plan,
    RunStatus,
    VersionRecord,
    VisitRecord,
    about_loss,
)
from polyrhythm.runs.summary import Best

_PAUSE = 0.05  # seconds between two tries when a run ends


@final
@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a checkpoint holds.

    Args:
        run: all that the run was.
        best: its best version so far.
        best_file: the weights of that, as a file, without what nobody changes.
    """

    run: Any
    best: Best
    best_file: bytes | None


@final
@dataclass(frozen=True, kw_only=True)
class TakenUp:
    """A recorded run that is to go on.

    Args:
        run_id: which one.
        config: of the experiment, as it goes on.
        kept: what its checkpoint holds; None if it has none, and begins anew.
        cut: what of its rows is from before the checkpoint.
        notes: what is to be said of it.
    """

    run_id: str
    config: Mapping[str, Any]
    kept: Kept | None
    cut: Cut
    notes: tuple[str, ...]

    @property
    def start(self) -> Any:
        """Where it stood; None at its beginning."""
        return None if self.kept is None else self.kept.run


@final
class Recorder(Observer):
    """Records a run in a folder: a row in `runs.sqlite`, and `<run_id>/final.safetensors` and `best.safetensors`.

    The best version is chosen by validation data if there are any, otherwise by the test set; the file says which.
    What a kill can lose is the last half second of quick versions.

    Args:
        folder: the output folder, shared by any number of runs; made if missing.
        keeper: writes checkpoints; there are none if None.
        taken_up: the run that goes on; a new one if None.
        notices: to be kept beside those of the plan.
    """

    wants_digests = True

    def __init__(
        self,
        folder: Path | str = "runs",
        *,
        keeper: Keeper | None = None,
        taken_up: TakenUp | None = None,
        notices: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder)
        self._patience = Patience()
        self._keeper, self._taken_up = keeper, taken_up
        self.run_id = ""
        """Set by `begin`: the time of the start (UTC) and four characters that keep it unique."""
        self._writer: Writer | None = None
        self._lock: IO[bytes] | None = None
        self._best = Best("")
        self._best_kept: KeptWeights | None = None
        self._base: Mapping[str, Any] = {}
        self._headline = ""
        self._model: ModelView | None = None
        self._version = 0
        self._failed = ""
        self._notices = (*notices, *(() if taken_up is None else taken_up.notes))
        self._noted = False

    @property
    def path(self) -> Path:
        """The folder of this run's own files."""
        return self.folder / self.run_id

    @property
    def began(self) -> bool:
        """Whether it has a row of its own, or has taken one up."""
        return self._lock is not None

    def begin(self, plan: Plan) -> None:
        """Opens the record.

        Raises:
            UserError: the folder or its database cannot be written, is locked or damaged.
        """
        self._headline = plan.headline
        self._best, self._base = Best(plan.headline), plan.base()
        self._notices = (*plan.notices, *self._notices)
        writer = Writer(self.folder)
        try:
            if self._taken_up is None:
                self._begin_new(writer, plan)
            else:
                self._take_up(writer, plan, self._taken_up)
        except BaseException:
            writer.close()
            raise
        self._writer = writer

    def _begin_new(self, writer: Writer, plan: Plan) -> None:
        self.run_id = self._new_folder()
        # Locked before its row is there, so that nobody takes it for a killed run.
        self._lock = run_lock.hold(self.path)
        try:
            writer.start({"run_id": self.run_id, **row_of(plan), "started": naming.now(), "notices": self._notices})
        except BaseException:
            run_lock.release(self.path, self._lock)
            self._lock = None
            self.path.rmdir()
            raise

    def _take_up(self, writer: Writer, plan: Plan, earlier: TakenUp) -> None:
        self.run_id = earlier.run_id
        with _usable(self.path):
            self.path.mkdir(exist_ok=True)
            try:
                self._lock = run_lock.hold(self.path)
            except BlockingIOError:
                raise going_on(self.run_id) from None
        try:
            changes = {
                **{"status": "running", "reason": "", "ended": None, "summary": None, "notices": self._notices},
                **{"rounds": plan.rounds, "config": earlier.config, "config_digest": digest_of(earlier.config)},
            }
            writer.resume(self.run_id, changes, earlier.cut)
            # Of a future that is made again; left here they would be kept in place of those to come.
            with _usable(self.path):
                for path in checkpoints(self.path):
                    if version_of(path) > earlier.cut.version:
                        path.unlink()
                (self.path / "final.safetensors").unlink(missing_ok=True)
                if earlier.kept is None or earlier.kept.best_file is None:
                    (self.path / "best.safetensors").unlink(missing_ok=True)
            if earlier.kept is not None and earlier.kept.best_file is not None:
                self._best = earlier.kept.best
                self._write("best.safetensors", with_base(earlier.kept.best_file, self._base))
        except BaseException:
            run_lock.release(self.path, self._lock)
            self._lock = None
            raise

    def _new_folder(self) -> str:
        while True:
            run_id = naming.new_id()
            try:
                (self.folder / run_id).mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise _unusable(self.folder, error) from error
            return run_id

    def members(self, records: Sequence[ClientRecord]) -> None:
        """Keeps what the clients are: when the run begins, and what it has come to know of them in the end."""
        writer = self._opened()
        known = writer.written["clients"] > 0
        for record in records:
            if not known:
                writer.add(record)
            elif record.there is not None:
                writer.replace(record)

    def visit(self, record: VisitRecord) -> None:
        """Keeps a visit."""
        self._opened().add(record)

    def event(self, record: EventRecord) -> None:
        """Keeps what the server heard, and when."""
        self._opened().add(record)

    def answer(self, record: AnswerRecord) -> None:
        """Keeps what the server was told of who is there."""
        self._opened().add(record)

    def client_results(self, record: ClientResultsRecord) -> None:
        """Keeps what single clients get out of a version."""
        self._opened().add(record)

    def class_results(self, record: ClassResultsRecord) -> None:
        """Keeps what a version makes of each class."""
        self._opened().add(record)

    def version(self, record: VersionRecord, model: ModelView) -> None:
        """Keeps a version, and its weights if it is the best so far.

        Raises:
            RunFailed: the record can no longer be written.
        """
        self._model, self._version = model, record.version
        if said := about_loss(record):
            self._note(said)
        if self._best.improves(record):
            self._best_kept = KeptWeights(model(), self._base, self._about_best())  # on disk at the next commit
        if self._opened().add(record):
            self._write_best()

    def _note(self, said: str) -> None:
        """Adds a notice to those of the run, once."""
        if not self._noted:
            self._noted = True
            self._opened().note((*self._notices, said))

    def goes_on(self, version: int, model: ModelView) -> None:
        """Notes what there is already."""
        self._model, self._version = model, version

    def at_rest(self, version: int, state: Callable[[], Any], *, surely: bool) -> None:
        """Writes a checkpoint, if it is time for one and the rows up to it can be made to last.

        One that cannot be written, as on a full disk, is left out, and the record says so in the end.

        Raises:
            RunFailed: the record can no longer be written.
        """
        if self._keeper is None or not self._keeper.due(version, surely=surely):
            return
        # The rows first: what a checkpoint does not know is cut off, but what is missing before it would stay so.
        if not self._opened().commit(durable=True):
            return
        self._write_best()
        try:
            file = None if self._best_kept is None else self._best_kept.learned()
            if file is None and self._best.version is not None:
                file = without_base(self.path / "best.safetensors", self._base)
            self._keeper.write(self.path, version, lambda: Kept(run=state(), best=self._best, best_file=file))
        except OSError as error:  # the run is worth more than the checkpoint
            self._failed = f"; checkpoints could not be written ({error.strerror or error})"

    def end(self, status: RunStatus, reason: str, summary: Mapping[str, Any]) -> None:
        """Writes the final weights, then the last rows and the summary. After a refused `begin` it does nothing.

        Raises:
            RunFailed: the record can no longer be written.
        """
        if self._writer is None:
            return
        self._patience.share(self._writer.patience)
        try:
            while not self._write_best():
                time.sleep(_PAUSE)
            if self._model is not None:
                about = {"run_id": self.run_id, "version": str(self._version)}
                content = safetensors_pieces(self._model(), about)
                while not self._write("final.safetensors", content):
                    time.sleep(_PAUSE)
            if status == "finished":
                self._check_whole(self._writer, reason)
        except RunFailed as error:
            status, reason = "failed", str(error)
            raise
        finally:
            writer, self._writer, self._model = self._writer, None, None
            writer.patience.share(self._patience)
            try:
                writer.finish(
                    status=status,
                    reason=reason + self._failed + self._waited(writer.waits),
                    ended=naming.now(),
                    summary={"run_id": self.run_id, **summary, "recorded": dict(writer.written)},
                )
            finally:
                if self._lock is not None:
                    run_lock.release(self.path, self._lock)

    def _check_whole(self, writer: Writer, reason: str) -> None:
        """Lets no run with holes in its record be a finished one.

        Raises:
            RunFailed: with what is missing; or the record can no longer be written.
        """
        while not writer.commit():
            time.sleep(_PAUSE)
        if not writer.is_whole():
            lost = holes.missing(self.folder, writer.number, finished=True, recorded=writer.written)
            raise RunFailed(
                f"{reason}, but {holes.in_words(lost)}: somebody has removed them, or the file was damaged; "
                "`polyrhythm resume` makes them again"
            )

    def _opened(self) -> Writer:
        if self._writer is None:
            raise RunFailed("a recorder was told of a visit or version before `begin` or after `end`")
        return self._writer

    def _about_best(self) -> dict[str, str]:
        return {
            "run_id": self.run_id,
            "version": str(self._best.version),
            "chosen_by": f"{self._best.chosen_by} {self._headline}",
        }

    def _waited(self, waits: int) -> str:
        times = waits + self._patience.times
        return f"; the record had to wait {times:,} times for a full disk or a locked database" if times else ""

    def _write_best(self) -> bool:
        """Writes the best weights if they are not on disk; false if there is no room now."""
        if self._best_kept is not None:
            if not self._write("best.safetensors", self._best_kept.whole()):
                return False
            self._best_kept = None
        return True

    def _write(self, name: str, content: bytes | Sequence[bytes | memoryview]) -> bool:
        """Writes a file; false if the disk is full, which may pass.

        Raises:
            RunFailed: it cannot be written, or the disk was full for too long.
        """
        try:
            write_whole(self.path / name, content)
        except OSError as error:
            if is_full(error) and self._patience.bears():
                return False
            long = f" for {PATIENCE:g} s" if is_full(error) else ""
            kept = "; what was recorded before is kept" if self.path.is_dir() else f": {self.path} has been removed"
            words = f"{self.path / name} cannot be written{long} ({error.strerror or error}){kept}"
            raise RunFailed(words) from error
        self._patience.over()
        return True


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unusable(error.filename or folder, error) from error


def _unusable(place: Path | str, error: OSError) -> UserError:
    return UserError(
        f"{place} cannot be written: {error.strerror or error}",
        expected="an output folder in which files can be made and removed",
        why="the weights could not be kept",
        fix="correct its permissions, move away what is in their place, free space, or use another folder "
        "(--out FOLDER)",
    )


def going_on(run_id: str) -> UserError:
    """The error for a run that somebody else carries out."""
    return UserError(
        f"{run_id} is going on",
        expected="a run whose process has ended",
        why="two processes would write one record",
        fix="wait for it, or end its process first",
    )
