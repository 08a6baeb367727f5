"""Rounds: how many, in which order, what is on disk after each run, and how it goes on."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from ringside.compare import durations, experiment
from ringside.compare.budget import round_order
from ringside.compare.experiment import RESULTS, launched, run_rounds
from ringside.compare.progress import Observer
from ringside.verify import store
from ringside_core.specs import (
    Comparison,
    Execution,
    Load,
    Outcome,
    RefusalError,
    Rounds,
    RunSpec,
)
from tests.unit.compare.made import BASE, Made, comparison_of
from tests.unit.stats.factory import spec_of


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What the made-up certificates say, whoever is editing the code meanwhile.
    monkeypatch.setattr(store, "code_now", lambda: "c0de" * 16)


def made(comparison: Comparison, folder: Path, executor: Made) -> Comparison:
    """The comparison after all its rounds, as it is on disk."""
    ended = run_rounds(comparison, folder=folder, executor=executor, observer=Observer())
    again = Comparison.from_json((folder / RESULTS).read_text(encoding="utf-8"))
    assert again == ended
    return ended


def test_every_round_has_every_arm_in_its_order_and_with_its_seed(tmp_path: Path) -> None:
    """Three rounds; the seed of the first is the one that the user gave."""
    executor = Made()
    comparison = comparison_of("mirrored,horovod", "1,2")

    ended = made(comparison, tmp_path, executor)

    assert ended.rounds == 3
    assert executor.ran == [
        (arm.label, BASE.seed + number)
        for number in range(3)
        for arm in round_order(comparison.arms, number, comparison.seed)
    ]
    assert [run.position for run in ended.runs] == list(range(18))
    assert ended.ended_because == "All rounds that were asked for were made."


def test_a_disturbed_round_is_made_again_at_the_end(tmp_path: Path) -> None:
    """The repeat has its own number and seed; the disturbed round stays."""
    executor = Made(busy=(4,))  # of three arms: in the second round

    ended = made(comparison_of("mirrored"), tmp_path, executor)

    assert ended.rounds == 4
    assert {seed for _, seed in executor.ran[9:]} == {BASE.seed + 3}
    assert "1 more was disturbed" in ended.ended_because


@pytest.mark.parametrize(
    ("noise", "rounds", "words"),
    [(0.0005, 5, "at most 5.0 % wide"), (0.2, 7, "would not fit into the budget")],
)
def test_rounds_go_on_until_they_are_precise_or_the_budget_ends(
    tmp_path: Path, noise: float, rounds: int, words: str
) -> None:
    """A round of three arms takes 30 s; the eighth would end at 240 s."""
    comparison = comparison_of("mirrored", verified=True).replace(
        asked=Rounds(least=3, most=100, interval_width=0.05, budget_s=220.0)
    )

    ended = made(comparison, tmp_path, Made(noise=noise))

    assert ended.rounds == rounds
    assert words in ended.ended_because


def test_an_interrupted_round_is_completed(tmp_path: Path) -> None:
    """Runs, order and seeds equal those of a comparison without the interruption."""
    whole = Made()
    made(comparison_of("mirrored,horovod", "1,2"), tmp_path / "whole", whole)
    folder, first, second = tmp_path / "halves", Made(stop_at=8), Made()
    with pytest.raises(KeyboardInterrupt):
        made(comparison_of("mirrored,horovod", "1,2"), folder, first)
    left = Comparison.from_json((folder / RESULTS).read_text(encoding="utf-8"))
    assert (len(left.runs), left.ended_because) == (8, "")

    ended = made(left, folder, second)  # the folder of the run that was stopped is there

    assert first.ran + second.ran == whole.ran
    assert [run.position for run in ended.runs] == list(range(18))


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


def test_a_model_that_is_edited_while_rounds_are_made_ends_them(tmp_path: Path) -> None:
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
def test_code_of_ringside_that_is_edited_ends_the_rounds(
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

    _, load = launched(1.0, Observer())(arm, spec_of("horovod", 2), tmp_path)

    if load is None:
        pytest.skip("no /proc/stat")
    assert load.cores == 2


def test_a_long_label_makes_a_folder_all_the_same(tmp_path: Path) -> None:
    """A file system allows 255 bytes for a name."""
    comparison = comparison_of("serial")
    (arm,) = comparison.arms
    comparison = comparison.replace(arms=(arm.replace(label="ø:" * 200),))

    ended = made(comparison, tmp_path, Made())

    assert [len(Path(run.log_dir).parts[1]) for run in ended.runs] == [4 + 80] * 3
    assert all((tmp_path / run.log_dir).is_dir() for run in ended.runs)
