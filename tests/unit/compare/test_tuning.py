"""The search for settings: the same number of trials for every arm, the best one chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ringside.comparison.arms import parse_arms, with_changes
from ringside.comparison.tuning import (
    Tried,
    arms_to_tune,
    best_of,
    candidates,
    next_best,
    next_setting,
    tune,
)
from ringside_core.specs import (
    BACKENDS,
    Check,
    Comparison,
    Execution,
    Load,
    RunSpec,
    Settings,
)
from ringside_core.specs.knob import knobs
from tests.unit.compare.made import UNSEEN, Made, comparison_of
from tests.unit.report.proofs import certificate

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
        assert {knob.name for knob in knobs(row.options)} <= known


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


def test_the_fastest_is_chosen() -> None:
    """The first of equal ones; none if no trial ran."""
    ran = [Tried({}, 10.0), Tried({"a": 1}, 12.0), Tried({"b": 2}, None), Tried({"c": 4}, 12.0)]

    assert best_of(ran) == ran[1]
    assert best_of([Tried({}, None)]) is None


@dataclass
class BySetting(Made):
    """An epoch takes the shortest of the times of words in the arm's label, or a second."""

    words: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, arm: Any, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        """One run."""
        found = [seconds for word, seconds in self.words.items() if word in arm.label]
        self.epoch_s = {arm.label: min(found, default=1.0)}
        return super().__call__(arm, spec, run_dir)


XLA = {"jit_compile": 0.25}
GROUPS = {"compression=fp16": 0.25, "num_groups=1": 0.5}  # gradients in float16 are the fastest


def test_the_best_settings_become_arms_at_all_sizes(tmp_path: Path) -> None:
    """At most ten trials; none for the twin; the best are marked."""
    comparison = comparison_of("mirrored", "1,2").replace(trials_each=10)
    executor = BySetting(words=XLA)

    tuned = tune(comparison, folder=tmp_path, executor=executor, observer=UNSEEN)

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
        comparison, folder=tmp_path, executor=Made(fails=("jit_compile",)), observer=UNSEEN
    )

    assert tuned.arms == comparison.arms
    assert [t.arm.label for t in tuned.trials if t.chosen] == ["serial ×1", "mirrored ×1"]
    failed = [t.run.outcome.reason for t in tuned.trials if not t.run.outcome.completed]
    assert failed == ["made to fail"] * 2


def certified_but(word: str, comparison: Comparison) -> tuple[Comparison, list[str]]:
    """With certificates for arms that lack one; it fails if a word is in the arm's options."""
    there = {one.arm.label for one in comparison.certificates}
    missing = [arm for arm in comparison.arms if arm.label not in there and not arm.twin_of]
    failed = (Check(name="each update", passed=False, finding="parts at update 1"),)
    made = tuple(
        certificate(arm, comparison.spec_of(arm), **({"checks": failed} if bad else {}))
        for arm in missing
        for bad in [word in str(arm.options)]
    )
    both = (*comparison.certificates, *made)
    return comparison.replace(certificates=both), [arm.label for arm in missing]


def test_the_fastest_setting_that_can_be_certified_is_chosen(tmp_path: Path) -> None:
    """What is faster and not certified is passed over, with the reason."""
    comparison = comparison_of("horovod", "1,2").replace(trials_each=20)
    tuned = tune(comparison, folder=tmp_path, executor=BySetting(words=GROUPS), observer=UNSEEN)
    tuned, asked = certified_but("fp16", tuned)
    assert "horovod tuned ×2" in asked

    while (other := next_best(tuned)) is not None:
        tuned, asked = certified_but("fp16", other)
        assert set(asked) == {"horovod tuned ×1", "horovod tuned ×2"}

    chosen = next(t for t in tuned.trials if t.chosen and t.tuned_from == "horovod ×2")
    assert chosen.arm.options.num_groups == 1  # type: ignore[attr-defined]
    assert chosen.arm.options.compression == "none"  # type: ignore[attr-defined]
    passed_over = [t for t in tuned.trials if t.passed_over]
    assert passed_over
    assert all("fp16" in t.arm.label and not t.chosen for t in passed_over)
    assert {t.passed_over for t in passed_over} <= {
        f"horovod tuned ×{n} is not certified: each update: parts at update 1" for n in (1, 2)
    }
    assert all(one.passed for one in tuned.certificates)
    labels = [arm.label for arm in tuned.arms if arm.tuned_from]
    assert labels == ["horovod tuned ×1", "horovod tuned ×2"]
    assert tune(tuned, folder=tmp_path, executor=Made(), observer=UNSEEN) == tuned


def test_an_arm_that_is_not_certified_as_it_is_keeps_its_choice(tmp_path: Path) -> None:
    """Its settings are not the cause, and every certificate takes a minute."""
    comparison = comparison_of("mirrored", "2").replace(trials_each=8)
    tuned = tune(comparison, folder=tmp_path, executor=BySetting(words=XLA), observer=UNSEEN)

    none_passes, _ = certified_but("", tuned)

    assert next_best(none_passes) is None


def test_trials_go_on_where_they_stopped(tmp_path: Path) -> None:
    """No trial is repeated, and the same setting is chosen."""
    comparison = comparison_of("mirrored").replace(trials_each=4)
    whole = tune(comparison, folder=tmp_path / "a", executor=Made(), observer=UNSEEN)
    left = comparison.replace(trials=whole.trials[:6])
    executor = Made()

    again = tune(left, folder=tmp_path / "b", executor=executor, observer=UNSEEN)

    assert [label for label, _ in executor.ran] == [t.arm.label for t in whole.trials[6:]]
    assert [t.arm for t in again.trials] == [t.arm for t in whole.trials]
