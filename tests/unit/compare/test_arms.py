"""What a person types becomes arms, and arms become runs."""

from typing import Any

import pytest

from launch.flags import spec_from_flags
from ringside.comparison.arms import (
    default_backends,
    of_default_comparison,
    parse_arms,
    refuse_same_runs,
    twin,
)
from ringside_core.specs import RefusalError, Scaling, Shared, Surroundings


def shared_of(scaling: Scaling = "strong", **flags: Any) -> Shared:
    """What arms share, as the flags say it."""
    spec = spec_from_flags(Surroundings(), backend="serial", save="record", **flags)
    return Shared.from_run(spec, scaling)


def test_each_backend_at_each_size_with_the_reference() -> None:
    """`serial` is added with one replica; each set of options is an arm of its own."""
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
        (
            "horovod:fusion=1",
            "1",
            "Options of horovod: .*fusion_threshold_mb.*Settings of any arm:",
        ),
        ("serial:steps_per_execution=0", "1", "steps_per_execution"),
        ("horovod:controller", "1", "name=value"),
        ("", "1", "at least one"),
        ("mirrored", "0", "at least 1"),
        ("horovod:keras=2:keras=3", "1", "keras=2 and keras=3"),
        ("serial:keras=some", "1", r"serial:keras=some: keras: .*'some'"),
        ("horovod:cycle_time_ms=0", "1", r"horovod:cycle_time_ms=0: cycle_time_ms: "),
    ],
)
def test_a_wrong_list_is_refused(backends: str, replicas: str, words: str) -> None:
    """Each mistake has its own message."""
    with pytest.raises(RefusalError, match=words):
        parse_arms(backends, replicas)


@pytest.mark.parametrize(
    ("backends", "flags", "twice"),
    [
        ("serial:keras=2", {}, "serial ×1 and serial:keras=2 ×1"),
        ("mirrored:jit_compile=true,mirrored:jit_compile=1", {}, "=true ×2 and mirrored"),
        ("horovod,horovod:compression=none", {}, "horovod ×2 and horovod:compression=none ×2"),
        (
            "mirrored,mirrored:intra_op_threads=1",
            {"intra_op_threads": 1},
            "mirrored ×2 and mirrored:intra_op_threads=1 ×2",
        ),
        ("serial:steps_per_execution=1", {"steps_per_execution": 3}, ""),
        ("mirrored,mirrored:metrics=each_step", {}, "mirrored:metrics=each_step"),
        ("mirrored,mirrored:metrics=each_epoch", {}, ""),
        ("horovod,horovod:compression=fp16", {}, ""),
    ],
)
def test_a_setting_that_all_have_anyway_makes_no_arm(
    backends: str, flags: dict[str, Any], twice: str
) -> None:
    """By what it would run, which depends on the flags; other settings do make one."""
    shared = shared_of(**flags)
    arms = parse_arms(backends, "2")

    if twice:
        with pytest.raises(RefusalError, match=twice):
            refuse_same_runs(shared, arms)
    else:
        refuse_same_runs(shared, arms)


def test_every_replica_gets_the_same_cores_and_threads() -> None:
    """Two replicas in a process have twice the threads of one, of both kinds, asked for or not."""
    shared = shared_of(cores_per_replica=2, inter_op_threads=3)
    asked = shared.replace(resources=shared.resources.replace(intra_op_threads=5))
    arms = parse_arms("mirrored,horovod", "1,2")

    threads = {arm.label: shared.spec_of(arm).resources.intra_op_threads for arm in arms}

    assert threads == {
        "serial ×1": 2,
        "mirrored ×1": 2,
        "mirrored ×2": 4,
        "horovod ×1": 2,
        "horovod ×2": 2,
    }
    for label, replicas in (("mirrored ×2", 2), ("horovod ×2", 1)):
        arm = next(arm for arm in arms if arm.label == label)
        resources = asked.spec_of(arm).resources
        assert resources.intra_op_threads == 5 * replicas
        assert resources.inter_op_threads == 3 * replicas


def test_weak_scaling_keeps_the_batch_of_a_replica() -> None:
    """The global batch grows with the replicas; an arm that explains has its own."""
    strong, weak = shared_of(global_batch=12), shared_of("weak", global_batch=12)
    arms = parse_arms("mirrored", "1,3")

    assert [weak.spec_of(arm).global_batch for arm in arms] == [12, 12, 36]
    assert [strong.spec_of(arm).global_batch for arm in arms] == [12, 12, 12]
    explains = arms[2].replace(global_batch=6, ablation="no_input")
    assert weak.spec_of(explains).global_batch == 6
    assert strong.spec_of(explains).ablation == "no_input"


def test_the_twin_is_serial_once_more() -> None:
    """It is the same arm in a group of its own; the reference alone has no twin."""
    arms = parse_arms("horovod,mirrored", "1,2")

    (found,) = twin(arms)

    assert (found.label, found.group) == ("serial ×1 again", "serial again")
    assert found.replace(label=arms[0].label, group=arms[0].group, twin_of="") == arms[0]
    assert found.twin_of == arms[0].label
    assert twin(parse_arms("serial", "1,2")) == ()


def test_the_default_comparison_has_each_way_to_combine_gradients() -> None:
    """At several replicas, beside serial; other arms are compared when they are named."""
    arms = of_default_comparison(parse_arms(default_backends(), "1,2"))

    assert [arm.label for arm in arms] == [
        "serial ×1",
        "mirrored ×2",
        "multi_worker_mirrored ×2",
        "horovod ×2",
    ]
