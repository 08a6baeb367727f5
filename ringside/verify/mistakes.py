"""Deliberate mistakes that the gate must catch, and where each of them can be made.

Each is a real bug from somebody's distributed training; controls.py makes them. This file imports
no TensorFlow, because a detection matrix is planned and shown without it.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from ringside_core.specs import Control, HorovodOptions, RunSpec, unknown_name

# The control workloads have 27 examples in batches of 12, 12 and 3. In the last batch two replicas
# get 3 and 0 examples, three get 3, 0 and 0. Of the 7 held-out examples two replicas get 6 and 1,
# three get 4, 3 and 0.
TRAIN_EXAMPLES, VALIDATION_EXAMPLES, GLOBAL_BATCH = 27, 7, 12
EPOCHS = 2

MISTAKES: tuple[Control, ...] = (
    Control(
        name="gradients_summed",
        mistake="The gradients of the replicas are added up where their mean is meant.",
    ),
    Control(
        name="not_reduced",
        mistake="The gradients are not reduced: each replica applies its own, or, where all share "
        "one copy of the variables, only those of the first are applied.",
    ),
    Control(
        name="partly_reduced",
        mistake="The gradients of all variables but the last are reduced.",
    ),
    Control(
        name="no_initial_broadcast",
        mistake="Each process draws its own initial weights, and nobody broadcasts.",
    ),
    Control(
        name="same_shard",
        mistake="Every replica is fed the first one's share of the training data.",
    ),
    Control(
        name="fed_nothing",
        mistake="The last replica is fed nothing in its second update.",
    ),
    Control(
        name="tail_dropped",
        mistake="The training data are cut to whole global batches.",
    ),
    Control(
        name="validation_tail_dropped",
        mistake="The validation data are cut to whole batches of a replica.",
    ),
    Control(
        name="rate_scaled_twice",
        mistake="The learning rate is multiplied by the number of replicas once more.",
    ),
    Control(
        name="local_mean",
        mistake="Each replica's loss is a mean over its own examples, also where replicas have "
        "unequal shares of a batch.",
    ),
    Control(
        name="batch_norm_not_synchronised",
        mistake="Batch normalisation is asked to be synchronised, and silently is not.",
    ),
    Control(
        name="metric_mean_unweighted",
        mistake="An evaluation is the plain mean of the replicas' results over unequal shares.",
    ),
    Control(
        name="state_not_restored_everywhere",
        mistake="After a restart only the first process has the optimizer's state.",
    ),
    Control(
        name="float16_compression",
        mistake="The gradients are reduced in float16, which nobody asked for.",
    ),
    Control(
        name="padding_counted",
        mistake="The padding of short batches counts as examples.",
    ),
    Control(
        name="different_order",
        mistake="Each reader shuffles with its own seed: examples are missing and repeated.",
    ),
)

_Need = Literal[
    "several replicas",
    "several readers",
    "own weights",
    "reduction",
    "synchronous",
    "shared mean",
    "no compression",
    "short batch",
    "short validation",
]

_NEEDS: Mapping[str, tuple[_Need, ...]] = {
    "gradients_summed": ("several replicas",),
    "not_reduced": ("several replicas", "reduction"),
    "partly_reduced": ("several replicas", "reduction"),
    "no_initial_broadcast": ("several replicas", "own weights"),
    "same_shard": ("several replicas",),
    "fed_nothing": (),
    "tail_dropped": ("short batch",),
    "validation_tail_dropped": ("short validation",),
    "rate_scaled_twice": ("several replicas",),
    "local_mean": ("several replicas", "shared mean", "short batch"),
    "batch_norm_not_synchronised": ("several replicas", "synchronous"),
    "metric_mean_unweighted": ("several replicas", "short validation"),
    "state_not_restored_everywhere": ("several replicas", "own weights"),
    "float16_compression": ("several replicas", "reduction", "no compression"),
    "padding_counted": ("short batch",),
    "different_order": ("several replicas", "several readers"),
}


def _several_readers(spec: RunSpec) -> bool:
    return spec.topology.num_processes > 1


def _own_weights(spec: RunSpec) -> bool:
    return spec.capabilities.process_model == "per_replica"


def _synchronous(spec: RunSpec) -> bool:
    return spec.capabilities.synchronous


def _not_compressed(spec: RunSpec) -> bool:
    return not isinstance(spec.options, HorovodOptions) or spec.options.compression == "none"


def _short_batch(spec: RunSpec) -> bool:
    return spec.global_batch < TRAIN_EXAMPLES and TRAIN_EXAMPLES % spec.global_batch > 0


def _short_validation(spec: RunSpec) -> bool:
    return 0 < whole_validation_batches(VALIDATION_EXAMPLES, spec) < VALIDATION_EXAMPLES


_Test = Callable[[RunSpec], bool]
_OBSTACLES: Mapping[_Need, tuple[_Test, str]] = {
    "several replicas": (
        lambda spec: spec.topology.num_replicas > 1,
        "There is one replica, which has nobody to share with.",
    ),
    "several readers": (_several_readers, "One reader feeds all replicas, in one order."),
    "own weights": (_own_weights, "One process gives all replicas their weights and state."),
    "reduction": (
        _synchronous,
        "Nothing is reduced: the gradients of each worker are an update of their own.",
    ),
    "synchronous": (
        _synchronous,
        "Each update sees the batch of one worker: there is nothing to synchronise.",
    ),
    "shared mean": (
        _synchronous,
        "Each update is the batch of one worker, and its mean is local rightly.",
    ),
    "no compression": (_not_compressed, "The run asks for gradients in float16."),
    "short batch": (_short_batch, "The data have no short batch after a whole one."),
    "short validation": (
        _short_validation,
        "The validation data are whole batches of a replica, or less than one.",
    ),
}


def obstacle(name: str, spec: RunSpec) -> str | None:
    """Why a mistake cannot be made in a run of its control workload, in one sentence.

    None: it can. This depends on the backend, its options, the topology and the global batch.

    Raises:
        RefusalError: there is no such mistake.
    """
    if name not in _NEEDS:
        raise unknown_name("mistake", name, _NEEDS)
    for need in _NEEDS[name]:
        possible, reason = _OBSTACLES[need]
        if not possible(spec):
            return reason
    return None


def workload_of(name: str) -> str:
    """The workload in which a mistake shows, as a RunSpec names it."""
    function = "control_workload"
    if name == "batch_norm_not_synchronised":
        function += "_with_batch_norm"
    return f"ringside.verify.workloads:{function}"


def shows_after_restart(name: str) -> bool:
    """Whether a mistake is made only in a training that continues from a checkpoint."""
    return name == "state_not_restored_everywhere"


def whole_validation_batches(examples: int, spec: RunSpec) -> int:
    """Number of held-out examples that are left when each replica drops its remainder."""
    return examples // spec.batch_plan.per_replica_batch * spec.batch_plan.per_replica_batch
