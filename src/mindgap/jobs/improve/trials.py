"""The trials of a race, through the store and the executors of the package."""

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mindgap.core import Finding, InputError, Progress, Record, Study, Table, Trial, option
from mindgap.diagnoses.causes import causes
from mindgap.runs.executors import AnyExecutor, SerialExecutor
from mindgap.runs.store import Store, StoredTrial
from mindgap.runs.sweep import sweep
from mindgap.runs.trial_id import version_of
from mindgap.training.race.arm import Arm
from mindgap.training.race.of_recipe import RecipeTrainer
from mindgap.training.race.scores import Scores, Wanted
from mindgap.training.race.trainer import Trainer

BLOCK = 8  # seeds of an arm in one trial, where they are trained at once


class ImproveTrials(Study, abstract=True):  # no entry of the catalog: it belongs to a recipe
    """The trainings of one race; what they depend on is hashed into ``problem``."""

    name: ClassVar[str] = "improve"
    problem: str = option("", help="hash of the recipe and its training data")

    # Not fields: the trial's identity is the problem and its own parameters.
    source: ClassVar[Any]
    wanted: ClassVar[tuple[Trial, ...]]
    code_version: ClassVar[str] = ""  # hashing the code takes longer than many a training

    @classmethod
    def of(
        cls, problem: str, source: Callable[[], Trainer], wanted: Sequence[Trial], version: str = ""
    ) -> Self:
        """Make a study of these trials.

        Args:
            problem: The hash.
            source: Makes or returns the trainer, in any process.
            wanted: The trials to run.
            version: Hash of the code, if it is known.
        """
        made = cls(problem=problem)
        object.__setattr__(made, "code_version", version)
        object.__setattr__(made, "source", source)
        object.__setattr__(made, "wanted", tuple(wanted))
        return made

    def trials(self) -> Sequence[Trial]:
        """Return the trials that are wanted now."""
        return self.wanted

    def run(self, trial: Trial) -> Record:
        """Train the seeds of one arm."""
        trainer: Trainer = self.source()
        if trial["stage"] == "diagnose":
            assert isinstance(trainer, RecipeTrainer)
            return {"findings": [row.to_dict() for row in causes(trainer, trial.seed)]}
        if trial["stage"] == "plan":
            return {"trainings": trial["trainings"]}
        arm, seeds = Arm.from_dict(trial["arm"]), trial["seeds"]
        if trial["stage"] == "confirm":
            return {"answers": [packed(row) for row in trainer.answers(arm, seeds)]}
        scores = trainer.scores(arm, seeds)
        return {"scores": [[packed(row.errors), packed(row.losses)] for row in scores]}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:  # noqa: ARG002
        """Nobody asks for a table of single trainings."""
        return Table(title="Trainings", columns=(), rows=())

    def tiny(self) -> Self:
        """Return itself."""
        return self


def packed(values: NDArray[Any]) -> Mapping[str, Any]:
    """Write an array as text; single precision, which answers have anyway."""
    small = np.ascontiguousarray(values, dtype="<f4")
    text = base64.b64encode(zlib.compress(small.tobytes(), 6)).decode()
    return {"shape": list(small.shape), "float32": text}


def unpacked(data: Mapping[str, Any]) -> NDArray[np.float32]:
    """Read back what :func:`packed` wrote.

    >>> unpacked(packed(np.array([[1.0, 0.5]]))).tolist()
    [[1.0, 0.5]]
    """
    content = zlib.decompress(base64.b64decode(data["float32"]))
    return np.frombuffer(content, dtype="<f4").reshape(data["shape"])


class _Share(Progress):
    """A bar that counts trainings, while the loop counts trials."""

    def __init__(self, whole: Progress) -> None:
        super().__init__(None, unit="", shown=False)
        self._whole, self.size, self._rest = whole, 1.0, 0.0

    def advance(
        self, facts: Mapping[str, float] | None = None, *, by: int = 1, failed: bool = False
    ) -> None:
        """Count the trainings of a finished trial."""
        self._rest += by * self.size
        whole = int(self._rest)
        self._rest -= whole
        self._whole.advance(facts, by=whole, failed=failed)

    def tick(self) -> None:
        """Update the clock."""
        self._whole.tick()

    def note(self, text: str) -> None:
        """Write a remark."""
        self._whole.note(text)


class Lab:
    """Runs the trainings of a race and keeps them in a store.

    Args:
        problem: Hash of the recipe and its training data.
        source: Makes or returns the trainer, in any process.
        trainer: The trainer, in this process.
        store: Where finished trials are kept.
        executor: Where they run.
        bar: Counts trainings.
    """

    def __init__(
        self,
        problem: str,
        source: Callable[[], Trainer],
        trainer: Trainer,
        store: Store,
        executor: AnyExecutor,
        bar: Progress,
    ) -> None:
        self._problem, self._source, self._trainer = problem, source, trainer
        self._store, self._executor, self._bar = store, executor, _Share(bar)
        self._version = version_of(ImproveTrials(problem=problem))

    def observe(self, _stage: str, wanted: Wanted) -> dict[tuple[str, int], Scores | str]:
        """Train arms and look at validation data, as the search asks."""
        found: dict[tuple[str, int], Scores | str] = {}
        for (arm, seeds), row in self._trained("search", wanted):
            record = row.record
            for place, seed in enumerate(seeds):
                found[arm.name, seed] = row.error
                if record is not None:
                    errors, losses = (unpacked(p).astype(float) for p in record["scores"][place])
                    found[arm.name, seed] = Scores(errors, losses, self._trainer.fold(seed))
        return found

    def answers(self, wanted: Wanted, test: str) -> dict[str, list[NDArray[np.float32]]]:
        """Train arms on all training data; return their answers to the test inputs.

        Args:
            wanted: Arms and their seeds.
            test: Hash of the test inputs.
        """
        found: dict[str, list[NDArray[np.float32]]] = {}
        for (arm, _), row in self._trained("confirm", wanted, test=test):
            if row.record is None:
                raise InputError(
                    f"Every arm of the confirmation must be trained, got a failure of {arm.name!r}: "
                    f"{row.error}. Run the command again to retry it."
                )
            found.setdefault(arm.name, []).extend(map(unpacked, row.record["answers"]))
        return found

    def findings(self, seed: int) -> list[Finding]:
        """Train the baseline once and diagnose it; no finding if that fails."""
        (row,) = self._rows([Trial(parameters={"stage": "diagnose"}, seed=seed)], 1)
        return [] if row.record is None else [Finding.from_dict(f) for f in row.record["findings"]]

    def kept_plan(self, budget: float, trainings: Callable[[], int]) -> int:
        """Return the plan of an earlier call with the same budget, or keep the new one."""
        known = [
            row
            for row in self._store.records(ImproveTrials.name)
            if row.fields.get("problem") == self._problem
            and row.parameters.get("stage") == "plan"
            and row.parameters.get("budget") == budget
            and row.record is not None
        ]
        if known and known[0].record is not None:
            return int(known[0].record["trainings"])
        count = trainings()
        plan = {"stage": "plan", "budget": budget, "trainings": count}
        self._rows([Trial(parameters=plan)], 0, SerialExecutor())
        return count

    def seconds(self, arm: Arm, seeds: Sequence[int]) -> float:
        """Return the time of a training: the mean of many at once and one alone."""
        together = self._trained("search", [(arm, seeds)])
        whole = sum(row.wall_seconds for _, row in together) / len(seeds)
        ((_, alone),) = self._trained("timing", [(arm, seeds[:1])])
        return (whole + alone.wall_seconds) / 2

    def _trained(
        self, stage: str, wanted: Wanted, **more: Any
    ) -> list[tuple[tuple[Arm, Sequence[int]], StoredTrial]]:
        blocks = [(arm, block) for arm, seeds in wanted for block in self._blocks(arm, seeds)]
        trials = [
            Trial(
                parameters={"stage": stage, "arm": arm.to_dict(), "seeds": list(block), **more},
                seed=block[0],
            )
            for arm, block in blocks
        ]
        total = sum(arm.cost * len(block) for arm, block in blocks)
        return list(zip(blocks, self._rows(trials, total), strict=True))

    def _blocks(self, arm: Arm, seeds: Sequence[int]) -> list[Sequence[int]]:
        size = BLOCK if self._trainer.together(arm) else 1
        return [seeds[start : start + size] for start in range(0, len(seeds), size)]

    def _rows(
        self, trials: Sequence[Trial], total: float, executor: AnyExecutor | None = None
    ) -> list[StoredTrial]:
        study = ImproveTrials.of(self._problem, self._source, trials, self._version)
        self._bar.size = total / max(len(trials), 1)
        swept = sweep(
            study,
            store=self._store,
            executor=executor or self._executor,
            progress=self._bar,
        )
        if swept.interrupted or swept.missing:
            raise KeyboardInterrupt
        self._bar.advance(by=swept.resumed)
        return [row for row in swept.rows if row is not None]
