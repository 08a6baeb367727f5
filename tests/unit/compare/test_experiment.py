"""Screening and final: who is in it, in which order, what is on disk, and how it goes on."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from ringside.certificates import store
from ringside.comparison import durations, experiment
from ringside.comparison.budget import order_of
from ringside.comparison.experiment import RESULTS, launched, run_launches
from ringside.stats.breakdown_arms import breakdown_arms
from ringside.stats.rounds import launches_of
from ringside_core.specs import Asked, Comparison, Execution, Load, Outcome, RefusalError, RunSpec
from tests.unit.compare.made import BASE, UNSEEN, Made, comparison_of
from tests.unit.report.proofs import recertified
from tests.unit.stats.factory import spec_of


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What the made-up certificates say, even if someone is editing the code meanwhile.
    monkeypatch.setattr(store, "code_now", lambda: "c0de" * 16)


def made(comparison: Comparison, folder: Path, executor: Made) -> Comparison:
    """The comparison after its last launch, as it is on disk."""
    ended = run_launches(comparison, folder=folder, executor=executor, observer=UNSEEN)
    again = Comparison.from_json((folder / RESULTS).read_text(encoding="utf-8"))
    assert again == ended
    return ended


# Epochs of half a second: of both families two arms are near each other, one is far behind.
SPEEDS = {
    "mirrored ×2": 0.50,
    "multi_worker_mirrored ×2": 0.52,
    "central_storage ×2": 0.90,
    "horovod ×2": 0.60,
    "horovod:controller=mpi ×2": 0.80,
}
BACKENDS = "mirrored,multi_worker_mirrored,central_storage,horovod,horovod:controller=mpi"
FINAL = ("mirrored ×2", "multi_worker_mirrored ×2", "horovod ×2")
SERIAL = ("serial ×1", "serial ×1 again")


def test_the_screening_chooses_and_the_final_has_its_launches(tmp_path: Path) -> None:
    """Every arm once but the twin; then the fastest of each family, who is near it, and serial."""
    executor = Made(SPEEDS)
    comparison = comparison_of(BACKENDS, "1,2")

    ended = made(comparison, tmp_path, executor)

    assert ended.finalists == ("serial ×1", *FINAL, "serial ×1 again")
    assert ended.rounds == 4
    first = order_of(comparison.arms[:-1], 0, comparison.seed)
    assert executor.ran[: len(first)] == [(arm.label, BASE.seed) for arm in first]
    assert executor.ran[len(first) :] == [
        (arm.label, BASE.seed + number - 1)  # the first one has the seed of the screening
        for number in (1, 2, 3)
        for arm in order_of(ended.arms_of(1), number, ended.seed)
    ]
    assert [run.position for run in ended.runs] == list(range(len(executor.ran)))
    assert ended.ended_because == "All 3 launches of the final were made."


class Dies(Made):
    """The arm fails from its second run on."""

    label = "horovod ×2"

    def __call__(self, arm: Any, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        """One run."""
        self.fails = (self.label,) if (self.label, BASE.seed) in self.ran else ()
        return super().__call__(arm, spec, run_dir)


def test_the_next_one_takes_the_place_of_a_contender_that_fails(tmp_path: Path) -> None:
    """Its launches are three too; one sentence says so."""
    ended = made(comparison_of(BACKENDS, "2"), tmp_path, Dies(SPEEDS))

    assert ended.finalists == (SERIAL[0], *FINAL[:2], "horovod:controller=mpi ×2", SERIAL[1])
    assert ended.notes == (
        "horovod ×2 failed in launch 1 of the final; horovod:controller=mpi ×2 takes its place.",
    )
    assert launches_of(ended).final in ((1, 2, 3), (2, 3, 4))
    assert ended.ended_because == "All 3 launches of the final were made."


class Departs(Made):
    """The arm feeds other rows from its second run on."""

    def __call__(self, arm: Any, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        """One run."""
        again = arm.label == "horovod ×2" and spec.seed > BASE.seed
        execution, load = super().__call__(arm, spec, run_dir)
        if again:
            records = tuple(
                one.replace(
                    epochs=tuple(
                        each.replace(ledger=each.ledger and each.ledger.replace(rows=7))
                        for each in one.epochs
                    )
                )
                for one in execution.records
            )
            execution = execution.replace(records=records)
        return execution, load


def test_a_contender_that_is_no_longer_comparable_leaves(tmp_path: Path) -> None:
    """As one that fails does."""
    comparison = comparison_of(BACKENDS, "2", verified=True)

    ended = made(comparison, tmp_path, Departs(SPEEDS))

    assert "horovod ×2" not in ended.finalists
    assert ended.notes == (
        "horovod ×2 cannot be compared since launch 2 of the final; horovod:controller=mpi ×2 "
        "takes its place.",
    )


def test_arms_that_were_never_to_be_ranked_stay(tmp_path: Path) -> None:
    """Uncertified ones where all take part, and what breaks a step down: the final goes on."""
    comparison = comparison_of("mirrored,horovod", "2", verified=True)
    comparison = recertified(comparison, "mirrored ×2", lambda one: None)
    broken_down = tuple(breakdown_arms(comparison.arms[1:3], comparison.shared))
    comparison = comparison.replace(
        arms=(*comparison.arms, *broken_down), asked=Asked(launches=3, all_arms=True)
    )

    ended = made(comparison, tmp_path, Made())

    assert broken_down
    assert ended.finalists == tuple(arm.label for arm in comparison.arms)
    assert (ended.notes, launches_of(ended).final) == ((), (1, 2, 3))


def test_no_final_is_left_without_a_second_contender(tmp_path: Path) -> None:
    """The only arm that distributes has failed."""
    executor = Dies()
    executor.label = "mirrored ×1"

    ended = made(comparison_of("mirrored"), tmp_path, executor)

    assert ended.notes == ("mirrored ×1 failed in launch 1 of the final.",)
    assert ended.ended_because == "No two contenders are there."


def test_arms_that_are_not_certified_are_no_contenders(tmp_path: Path) -> None:
    """However fast they are."""
    comparison = comparison_of(BACKENDS, "2", verified=True)
    comparison = recertified(comparison, "mirrored ×2", lambda one: None)

    ended = made(comparison, tmp_path, Made(SPEEDS))

    assert "mirrored ×2" not in ended.finalists
    assert "multi_worker_mirrored ×2" in ended.finalists


def test_an_interrupted_launch_is_completed(tmp_path: Path) -> None:
    """Runs, order and seeds equal those of a comparison without the interruption."""
    whole = Made(SPEEDS)
    made(comparison_of(BACKENDS, "1,2"), tmp_path / "whole", whole)
    for stop_at in (4, len(whole.ran) - 8):  # in the screening, in the final
        folder, first, second = tmp_path / str(stop_at), Made(SPEEDS, stop_at=stop_at), Made(SPEEDS)
        with pytest.raises(KeyboardInterrupt):
            made(comparison_of(BACKENDS, "1,2"), folder, first)
        left = Comparison.from_json((folder / RESULTS).read_text(encoding="utf-8"))
        assert (len(left.runs), left.ended_because) == (stop_at, "")

        ended = made(left, folder, second)  # the folder of the run that was stopped is there

        assert first.ran + second.ran == whole.ran
        assert [run.position for run in ended.runs] == list(range(len(whole.ran)))


def test_a_disturbed_launch_is_left_out_while_enough_are_left(tmp_path: Path) -> None:
    """The third launch of four; its runs stay in the file, and another one is made."""
    executor = Made(busy=(2 + 3 + 3,))
    comparison = comparison_of("mirrored").replace(asked=Asked(launches=4))

    ended = made(comparison, tmp_path, executor)

    found = launches_of(ended)
    assert (found.final, found.left_out) == ((1, 2, 4, 5), frozenset({3}))
    assert ended.rounds == 6


def test_how_long_runs_took_is_known_next_time(tmp_path: Path) -> None:
    """For any seed of the same spec, if each arm ran at least once."""
    assert durations.expected_s([BASE]) is None

    durations.remember(BASE, 12.0)
    durations.remember(BASE.replace(epochs=9), 30.0)
    durations.remember(BASE.replace(seed=7), 14.0)

    assert durations.expected_s([BASE, BASE.replace(epochs=9, seed=3)]) == 44.0
    assert durations.expected_s([BASE, BASE.replace(epochs=8)]) is None
    durations.durations_file().write_text("{", encoding="utf-8")
    assert durations.expected_s([BASE]) is None


class Edited(Made):
    """Changes a file while the fifth run is on."""

    file: Path

    def __call__(self, arm: Any, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        """One run."""
        if len(self.ran) == 4:
            self.file.write_text("layers = 3\n")
        return super().__call__(arm, spec, run_dir)


def test_a_model_that_is_edited_meanwhile_ends_it(tmp_path: Path) -> None:
    """That run is not kept, earlier runs are, and the message names the file."""
    model, executor = tmp_path / "my_model.py", Edited()
    executor.file = model
    model.write_text("layers = 2\n")
    digest = hashlib.sha256(b"layers = 2\n").hexdigest()
    comparison = comparison_of("mirrored", verified=True)
    comparison = comparison.replace(
        certificates=tuple(
            one.replace(sources={str(model): digest}) for one in comparison.certificates
        )
    )

    with pytest.raises(RefusalError, match=r"Nothing may change[^$]*my_model\.py has changed"):
        made(comparison, tmp_path, executor)

    left = Comparison.from_json((tmp_path / RESULTS).read_text(encoding="utf-8"))
    assert (len(executor.ran), len(left.runs), left.ended_because) == (5, 4, "")


@pytest.mark.parametrize("verified", [True, False])
def test_code_of_ringside_that_is_edited_ends_it(
    verified: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates show it; without them, the code identity from the beginning does."""
    comparison = comparison_of("mirrored", verified=verified)
    comparison = comparison.replace(code_version="" if verified else "c0de" * 16)
    monkeypatch.setattr(store, "code_now", lambda: "beef" * 16)

    with pytest.raises(RefusalError, match="Ringside's code has changed"):
        made(comparison, tmp_path, Made())


def test_a_pinned_run_is_watched_on_its_own_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas of one core each, on a machine of 64."""
    completed = Execution(outcome=Outcome(kind="completed"), records=(), wall_s=1.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(experiment, "make_plan", lambda *_, **__: None)
    monkeypatch.setattr(experiment, "execute", lambda *_, **__: completed)
    arm = comparison_of("horovod", "2").arms[-1]

    _, load = launched(1.0, UNSEEN)(arm, spec_of("horovod", 2), tmp_path)

    if load is None:
        pytest.skip("no /proc/stat")
    assert load.cores == 2


def test_a_long_label_makes_a_folder_all_the_same(tmp_path: Path) -> None:
    """A file system allows 255 bytes for a name."""
    comparison = comparison_of("serial")
    (arm,) = comparison.arms
    comparison = comparison.replace(arms=(arm.replace(label="ø:" * 200),))

    ended = made(comparison, tmp_path, Made())

    assert [len(Path(run.log_dir).parts[1]) for run in ended.runs] == [4 + 80]
    assert all((tmp_path / run.log_dir).is_dir() for run in ended.runs)
