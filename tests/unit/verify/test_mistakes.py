"""Where each deliberate mistake can be made, and why not elsewhere."""

import subprocess
import sys

import pytest

from ringside.verify.mistakes import (
    GLOBAL_BATCH,
    MISTAKES,
    obstacle,
    shows_after_restart,
    whole_validation_batches,
    workload_of,
)
from ringside_core.specs import (
    RefusalError,
    RunSpec,
    Topology,
    capabilities_of,
)

NAMES = {mistake.name for mistake in MISTAKES}
EVERYWHERE = {
    *("gradients_summed", "same_shard", "fed_nothing", "tail_dropped", "validation_tail_dropped"),
    *("rate_scaled_twice", "metric_mean_unweighted", "padding_counted"),
}
SYNCHRONOUS = {
    *("not_reduced", "partly_reduced", "local_mean", "batch_norm_not_synchronised"),
    "float16_compression",
}
OWN_PROCESSES = {"no_initial_broadcast", "state_not_restored_everywhere"}
SEVERAL_READERS = {"different_order"}


def spec(
    backend: str, replicas: int, *, global_batch: int = GLOBAL_BATCH, **options: object
) -> RunSpec:
    """A run of a control workload."""
    single = capabilities_of(backend).process_model == "single"
    return RunSpec(
        workload=workload_of("gradients_summed"),
        backend=backend,
        options=options,
        topology=Topology(replicas_per_process=replicas)
        if single
        else Topology(processes_per_host=replicas),
        global_batch=global_batch,
        epochs=1,
    )


@pytest.mark.parametrize(
    ("backend", "can_be_made"),
    [
        ("mirrored", EVERYWHERE | SYNCHRONOUS),
        ("central_storage", EVERYWHERE | SYNCHRONOUS),
        ("multi_worker_mirrored", NAMES),
        ("horovod", NAMES),
        ("parameter_server", EVERYWHERE | SEVERAL_READERS),
    ],
)
@pytest.mark.parametrize("replicas", [2, 3])
def test_what_an_arm_can_do_wrong(backend: str, can_be_made: set[str], replicas: int) -> None:
    """A backend can make each mistake, or a sentence says why it cannot."""
    run = spec(backend, replicas)

    obstacles = {name: obstacle(name, run) for name in NAMES}

    assert {name for name, reason in obstacles.items() if reason is None} == can_be_made
    for reason in obstacles.values():
        assert reason is None or (reason[0].isupper() and reason.endswith("."))


def test_one_replica_shares_with_nobody() -> None:
    """With one replica, only the data can be wrong."""
    run = spec("serial", 1)

    can_be_made = {name for name in NAMES if obstacle(name, run) is None}

    assert can_be_made == {"fed_nothing", "tail_dropped", "padding_counted"}


def test_whole_batches_have_no_tail() -> None:
    """27 examples in batches of 9 leave no short batch, so its mistakes are impossible."""
    run = spec("mirrored", 3, global_batch=9)

    hindered = {name for name in NAMES if (obstacle(name, run) or "").startswith("The data have")}

    assert hindered == {"tail_dropped", "local_mean", "padding_counted"}


def test_compression_that_was_asked_for_is_no_mistake() -> None:
    """With compression=fp16 under Horovod, float16 on the wire is intended."""
    asked = obstacle("float16_compression", spec("horovod", 2, compression="fp16"))

    assert asked == "The run asks for gradients in float16."
    assert obstacle("float16_compression", spec("horovod", 2)) is None


def test_an_unknown_mistake_is_refused_with_the_nearest() -> None:
    """The message suggests a name that exists."""
    with pytest.raises(RefusalError, match="Did you mean 'not_reduced'"):
        obstacle("not_reducd", spec("mirrored", 2))


@pytest.mark.parametrize(("replicas", "left"), [(1, 0), (2, 6), (3, 4), (4, 6), (6, 6), (12, 7)])
def test_what_dropping_the_remainder_leaves(replicas: int, left: int) -> None:
    """Of 7 held-out examples, with 12, 6, 4, 3, 2 or 1 in a batch of a replica."""
    run = spec("serial", 1) if replicas == 1 else spec("mirrored", replicas)

    assert whole_validation_batches(7, run) == left


def test_only_batch_norm_and_the_restart_need_more_than_a_dense_network() -> None:
    """One mistake has its own workload; one shows only after a restart."""
    workloads = {name: workload_of(name) for name in NAMES}

    assert {n for n, w in workloads.items() if w.endswith("with_batch_norm")} == {
        "batch_norm_not_synchronised"
    }
    assert {n for n in NAMES if shows_after_restart(n)} == {"state_not_restored_everywhere"}


def test_a_matrix_is_planned_without_tensorflow() -> None:
    """Importing the table imports neither TensorFlow nor Horovod."""
    program = (
        "import sys, ringside.verify.mistakes\n"
        "print({'tensorflow', 'tf_keras', 'horovod', 'ringside_core.keras'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "set()", done.stderr
