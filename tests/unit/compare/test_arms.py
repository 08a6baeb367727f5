"""What a person types becomes arms; the order of runs is drawn, whole and repeatable."""

from collections import Counter

import pytest

from compare.arms import DEFAULT_BACKENDS, arm_spec, parse_arms
from compare.experiment import draw_order
from launch.flags import spec_from_flags
from measure.machine import machine_facts
from specs import Comparison, RefusalError, Surroundings


def test_each_backend_at_each_size_with_the_reference() -> None:
    """serial comes by itself, with one replica; options make an arm of their own."""
    arms = parse_arms("horovod:controller=mpi,mirrored", "1,2")

    assert [arm.label for arm in arms] == [
        "serial ×1",
        "horovod:controller=mpi ×1",
        "horovod:controller=mpi ×2",
        "mirrored ×1",
        "mirrored ×2",
    ]
    assert arms[1].group == "horovod:controller=mpi"


@pytest.mark.parametrize(
    ("backends", "replicas", "words"),
    [
        ("horovd", "1", "Did you mean 'horovod'"),
        ("horovod:fusion=1", "1", "Known:"),
        ("horovod:controller", "1", "name=value"),
        ("mirrored,mirrored", "1", "once"),
        ("horovod,horovod:compression=none", "1", "horovod:compression=none"),
        ("", "1", "at least one"),
        ("mirrored", "0", "at least 1"),
        ("mirrored", "two", "at least 1"),
    ],
)
def test_a_wrong_list_is_refused(backends: str, replicas: str, words: str) -> None:
    """One message for each mistake."""
    with pytest.raises(RefusalError, match=words):
        parse_arms(backends, replicas)


def test_every_round_holds_every_arm_once_in_an_order_of_its_own() -> None:
    """The order is a function of the seed."""
    arms = parse_arms(DEFAULT_BACKENDS, "1,2")

    order = draw_order(arms, rounds=3, seed=1)

    assert Counter(order) == Counter({(n, arm): 1 for n in range(3) for arm in arms})
    assert [number for number, _ in order] == sorted(number for number, _ in order)
    rounds = [[arm for n, arm in order if n == number] for number in range(3)]
    assert rounds[0] != rounds[1]
    assert order == draw_order(arms, rounds=3, seed=1)
    assert order != draw_order(arms, rounds=3, seed=2)


def test_every_replica_gets_the_same_cores_and_threads() -> None:
    """Two replicas in a process have twice the threads of one, of both kinds, asked for or not."""
    base = spec_from_flags(
        Surroundings(), backend="serial", cores_per_replica=2, inter_op_threads=3
    )
    asked = base.replace(resources=base.resources.replace(intra_op_threads=5))
    arms = parse_arms("mirrored,horovod", "1,2")

    threads = {arm.label: arm_spec(base, arm).resources.intra_op_threads for arm in arms}

    assert threads == {
        "serial ×1": 2,
        "mirrored ×1": 2,
        "mirrored ×2": 4,
        "horovod ×1": 2,
        "horovod ×2": 2,
    }
    for label, replicas in (("mirrored ×2", 2), ("horovod ×2", 1)):
        arm = next(arm for arm in arms if arm.label == label)
        resources = arm_spec(asked, arm).resources
        assert resources.intra_op_threads == 5 * replicas
        assert resources.inter_op_threads == 3 * replicas


def test_a_comparison_survives_json() -> None:
    """Arms come back with options of their backend's own type."""
    arms = parse_arms(DEFAULT_BACKENDS, "1,2")
    original = Comparison(
        name="n",
        created_unix_s=0,
        command="ringside compare",
        machine=machine_facts(),
        seed=1,
        rounds=1,
        arms=arms,
    )

    again = Comparison.from_json(original.to_json())

    assert again == original
    assert [type(arm.options) for arm in again.arms] == [type(arm.options) for arm in arms]
