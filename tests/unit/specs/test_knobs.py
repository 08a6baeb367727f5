"""A knob is declared once: each field has its flag, and what else its declaration says."""

import functools
import inspect
from typing import Annotated, Any, get_args

import pytest
from pydantic import PositiveInt

import train
from launch.flags import spec_from_flags
from ringside.cli import compare, launch
from ringside.comparison.arms import parse_arms
from ringside.stats.summary import summarize
from ringside_core.specs import Noun, RefusalError, Settings, Shared, Surroundings
from ringside_core.specs.knob import Knob, KnobField, Search, knobs, with_values
from ringside_core.specs.run_spec import RunSpec, TrainingSpec
from ringside_core.workloads.registry import DEFAULT
from tests.unit.stats.factory import comparison_of, epoch, record, run_of

OTHER = {  # a value of each knob of an arm that is not its default, as typed
    "steps_per_execution": "5",
    "jit_compile": "true",
    "keras": "3",
    "policy": "mixed_bfloat16",
    "metrics": "each_epoch",
    "slow_worker": "0.33",
    "input": "cache",
    "intra_op_threads": "3",
    "inter_op_threads": "3",
}
EVERY = list(knobs(RunSpec))
PER_ARM = [knob for knob in EVERY if knob.knob.per_arm]


def value_of(noun: Noun, knob: KnobField) -> Any:
    """The value of a knob."""
    return functools.reduce(getattr, knob.path, noun)


class Inner(Noun):
    """A noun within."""

    depth: Annotated[PositiveInt, Knob("How deep.", ("--how-deep",), per_arm=True)] = 2


class Added(TrainingSpec):
    """A spec with one field more, which is all that a knob needs."""

    colour: Annotated[str, Knob("Of the run."), Search(("red",))] = "blue"
    inner: Inner = Inner()


def test_one_more_field_is_one_more_knob() -> None:
    """Of the noun or of one within: with its flag, its trials, and its place in a replacement."""
    new = [knob for knob in knobs(Added) if knob.name not in {one.name for one in EVERY}]
    spec = Added(epochs=1)

    assert [(one.name, one.path) for one in new] == [
        ("colour", ("colour",)),
        ("how_deep", ("inner", "depth")),
    ]
    assert new[0].searches == [Search(("red",))] and not new[1].searches
    changed = spec.replace(**with_values(Added, {"how_deep": 3, "colour": "red"}, spec))
    assert [value_of(changed, one) for one in new] == ["red", 3]
    with pytest.raises(TypeError, match="no knob depth"):
        with_values(Added, {"depth": 3}, spec)


def test_every_field_of_a_training_is_a_knob() -> None:
    """So no field is left out of the flags and of what arms must share."""
    first = {knob.path[0] for knob in knobs(TrainingSpec)}

    assert first == set(TrainingSpec.model_fields)
    assert len({knob.name for knob in EVERY}) == len(EVERY)
    (workload,) = (knob for knob in EVERY if knob.name == "workload")
    assert workload.knob.help.endswith(f"Default: {DEFAULT}.")


@pytest.mark.parametrize("knob", EVERY, ids=lambda knob: knob.name)
def test_a_knob_has_its_flag(knob: KnobField) -> None:
    """With its help and its default, in each command that it is of."""
    of_one, by_hand, of_several = (
        inspect.signature(command).parameters
        for command in (launch.command, train._by_hand, compare.command)
    )

    assert (knob.name in of_one) == (knob.name in by_hand) == bool(knob.knob.help)
    assert (knob.name in of_several) == (bool(knob.knob.help) and not knob.knob.one_run)
    if knob.name in of_one:
        assert of_one[knob.name].default == (None if knob.knob.open else knob.field.default)
        assert get_args(of_one[knob.name].annotation)[1].help == knob.knob.help


@pytest.mark.parametrize("knob", PER_ARM, ids=lambda knob: knob.name)
def test_an_arm_may_set_it(knob: KnobField) -> None:
    """After the backend's name; its run then has that value."""
    plain, arm = (
        parse_arms(text, "2")[-1] for text in ("horovod", f"horovod:{knob.name}={OTHER[knob.name]}")
    )
    spec = spec_from_flags(Surroundings(), backend="serial", save="record", cores_per_replica=1)
    shared = Shared.from_run(spec)

    before, after = (value_of(shared.spec_of(one), knob) for one in (plain, arm))

    assert str(after).lower() == OTHER[knob.name] != str(before).lower()


def test_settings_are_the_knobs_of_arms() -> None:
    """No more and no fewer."""
    assert list(Settings.model_fields) == [knob.name for knob in PER_ARM]
    assert set(OTHER) == set(Settings.model_fields)


VALUES: dict[str, Any] = {
    "workload": "synthetic", "data_dir": "d", "epochs": 9, "gradient_accumulation_steps": 2,
    "workload_option": {"a": 1}, "learning_rate_rule": "sqrt", "precision": "float64",
    "cores_per_replica": 9, "steps_per_execution": 2, "jit_compile": True, "keras": 3,
    "policy": "mixed_bfloat16",
    "metrics": "each_epoch",
    "slow_worker": 0.33,
    "input": "cache",
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_flag_reaches_the_spec(name: str) -> None:
    """In the field of its knob."""
    typed = ["a=1"] if name == "workload_option" else VALUES[name]
    flags: dict[str, Any] = {"epochs": 2, name: typed}

    spec = spec_from_flags(Surroundings(), backend="serial", **flags)

    (knob,) = (knob for knob in EVERY if knob.name == name)
    assert value_of(spec, knob) == VALUES[name]


def test_a_flag_of_a_part_has_no_least_whole_number() -> None:
    """0 < x < 1: the command line hands it on, and the spec refuses what it must not be."""
    flag = inspect.signature(launch.command).parameters["slow_worker"]

    assert get_args(flag.annotation)[1].min is None
    with pytest.raises(RefusalError, match="slow_worker"):
        spec_from_flags(Surroundings(), backend="serial", epochs=2, slow_worker=1.5)


@pytest.mark.parametrize("name", VALUES)
def test_runs_that_are_compared_must_share_it(name: str) -> None:
    """Unless the arm has a value of its own."""
    arms = parse_arms("mirrored", "1")
    base = spec_from_flags(Surroundings(), backend="serial", save="record", epochs=2)
    first, second = (Shared.from_run(base).spec_of(arm) for arm in arms)
    second = second.replace(**with_values(RunSpec, {name: VALUES[name]}, second))
    runs = [
        run_of(arm, [record(spec, [epoch(1.0)] * 2)], position=position)
        for position, (arm, spec) in enumerate(zip(arms, (first, second), strict=True))
    ]

    with pytest.raises(RefusalError, match="All runs that are compared must have the same"):
        summarize(comparison_of(arms, runs))


def test_every_shared_knob_was_asked() -> None:
    """Seeds differ by round, threads by process; warm-up needs a rule."""
    others = {knob.name for knob in knobs(TrainingSpec)} - set(VALUES)
    of_scripts = {"authors_batch"}

    assert others - of_scripts == {
        *("seed", "intra_op_threads", "inter_op_threads", "warmup_epochs")
    }
