"""The search for settings: the same number of trials for every arm, the best one chosen."""

from pathlib import Path

import pytest

from ringside.compare.arms import parse_arms
from ringside.compare.experiment import Observer
from ringside.compare.tuning import (
    Tried,
    arms_to_tune,
    best_of,
    candidates,
    next_setting,
    tune,
    with_changes,
)
from ringside_core.specs import BACKENDS, Settings
from tests.unit.compare.made import Made, comparison_of

SINGLES = [("a", 1), ("b", 2), ("b", 3), ("c", 4), ("d", 5)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_knob_is_an_option_of_its_backend_or_a_setting() -> None:
    """Otherwise a name that upstream changed would fail only during tuning."""
    for backend, row in BACKENDS.items():
        known = {*row.options.model_fields, *Settings.model_fields}
        arm = parse_arms(backend, "2")[-1]
        for name, value in candidates(arm, gpus=True):
            assert name in known
            assert with_changes(arm, {name: value}) != arm
        assert {knob.name for knob in row.knobs} <= known


def test_what_can_have_no_effect_is_not_tried() -> None:
    """No reduction with one replica, no NCCL without GPUs, no value that the arm already has."""
    one, two = parse_arms("horovod:compression=fp16", "1,2")[1:]

    names = {name for name, _ in candidates(one, gpus=False)}

    assert names == {"steps_per_execution", "jit_compile", "inter_op_threads"}
    of_two = candidates(two, gpus=False)
    assert ("cycle_time_ms", 0.5) in of_two
    assert ("compression", "fp16") not in of_two
    assert "hierarchical_allreduce" not in {name for name, _ in of_two}


@pytest.mark.parametrize(
    ("throughputs", "asked"),
    [
        # two thirds of six trials: as it is and three knobs; then those that were better
        ([10, 12, 9, 13, None, None], [{}, {"a": 1}, {"b": 2}, {"b": 3}, {"a": 1, "b": 3}]),
        # nothing was better: one knob after the other until the trials end
        ([10, 9, 9, 9, 9, 9], [{}, {"a": 1}, {"b": 2}, {"b": 3}, {"c": 4}, {"d": 5}]),
        # the arm as it is fails: whatever runs is better
        (
            [None, 5, None, None, 7, 1],
            [{}, {"a": 1}, {"b": 2}, {"b": 3}, {"c": 4}, {"c": 4, "a": 1}],
        ),
    ],
)
def test_one_knob_at_a_time_then_the_best_together(
    throughputs: list[float | None], asked: list[dict[str, int]]
) -> None:
    """The expected order of trials is written by hand."""
    tried: list[Tried] = []
    for throughput in throughputs[: len(asked)]:
        changes = next_setting(SINGLES, tried, trials=6)
        assert changes is not None
        tried.append(Tried(changes, throughput))

    assert [dict(one.changes) for one in tried] == asked


def test_the_trials_end() -> None:
    """At their number, or when nothing is left to try."""
    six = [Tried({"x": n}, 1.0) for n in range(6)]
    assert next_setting(SINGLES, six, trials=6) is None
    assert next_setting([], [Tried({}, 1.0)], trials=6) is None


def test_the_fastest_is_chosen() -> None:
    """The first of equal ones; none if no trial ran."""
    ran = [Tried({}, 10.0), Tried({"a": 1}, 12.0), Tried({"b": 2}, None), Tried({"c": 4}, 12.0)]

    assert best_of(ran) == ran[1]
    assert best_of([Tried({}, None)]) is None


class Faster(Made):
    """XLA makes it four times as fast."""

    def __call__(self, arm, spec, run_dir):  # type: ignore[no-untyped-def]
        """One run."""
        self.epoch_s = {arm.label: 0.25 if spec.jit_compile else 1.0}
        return super().__call__(arm, spec, run_dir)


def test_the_best_settings_become_arms_at_all_sizes(tmp_path: Path) -> None:
    """At most ten trials; none for the twin; the best are marked."""
    comparison = comparison_of("mirrored", "1,2").replace(trials_each=10)
    executor = Faster()

    tuned = tune(comparison, folder=tmp_path, executor=executor, observer=Observer())

    assert [arm.label for arm in arms_to_tune(tuned)] == ["serial ×1", "mirrored ×2"]
    assert [t.tuned_from for t in tuned.trials] == ["serial ×1"] * 6 + ["mirrored ×2"] * 8
    added = [(arm.label, arm.group, arm.tuned_from) for arm in tuned.arms if arm.tuned_from]
    assert added == [
        ("serial tuned ×1", "serial tuned", "serial ×1"),
        ("mirrored tuned ×1", "mirrored tuned", "mirrored ×1"),
        ("mirrored tuned ×2", "mirrored tuned", "mirrored ×2"),
    ]
    assert {arm.settings for arm in tuned.arms if arm.tuned_from} == {Settings(jit_compile=True)}
    assert [t.arm.settings.jit_compile for t in tuned.trials if t.chosen] == [True, True]


def test_where_nothing_is_faster_no_arm_is_added(tmp_path: Path) -> None:
    """A setting that fails is a trial with its reason."""
    comparison = comparison_of("mirrored").replace(trials_each=8)

    tuned = tune(
        comparison, folder=tmp_path, executor=Made(fails=("jit_compile",)), observer=Observer()
    )

    assert tuned.arms == comparison.arms
    assert [t.arm.label for t in tuned.trials if t.chosen] == ["serial ×1", "mirrored ×1"]
    failed = [t.run.outcome.reason for t in tuned.trials if not t.run.outcome.completed]
    assert failed == ["made to fail"] * 2


def test_trials_go_on_where_they_stopped(tmp_path: Path) -> None:
    """No trial is repeated, and the same setting is chosen."""
    comparison = comparison_of("mirrored").replace(trials_each=4)
    whole = tune(comparison, folder=tmp_path / "a", executor=Made(), observer=Observer())
    left = comparison.replace(trials=whole.trials[:6])
    executor = Made()

    again = tune(left, folder=tmp_path / "b", executor=executor, observer=Observer())

    assert [label for label, _ in executor.ran] == [t.arm.label for t in whole.trials[6:]]
    assert [t.arm for t in again.trials] == [t.arm for t in whole.trials]
