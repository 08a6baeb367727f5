"""The cases of a certificate: what an arm and the serial reference are asked to train.

Each parity case ends its epochs with another kind of short batch. The float64 case is watched after
each update. What is timed is not, so it is run once more as it is timed, and once in two parts.
"""

from collections.abc import Sequence

from ringside.verify.checks import COUNTED_EPOCHS
from ringside.verify.request import (
    FLOAT32_STEPS,
    Case,
    low_tail,
    part_filled_tail,
)
from ringside_core.specs import (
    REFERENCE,
    PipelineOptions,
    RunSpec,
    Topology,
    backend_options,
)
from ringside_core.specs.run_spec import MAX_SEED, LearningRateRule

WATCHED = "float64"
AS_TIMED = "as-timed"
RESUMED = "resumed"
COUNTING = "counting"
COUNTING_AS_TIMED = "counting-as-timed"
COUNTING_BATCH_PER_REPLICA = 6
SEEDS = 5
CONVERGENCE_UPDATES = 60
# Two epochs, each of three whole batches and a short one.
RESUMED_STEPS = 8


def reference_spec(spec: RunSpec) -> RunSpec:
    """The serial run with which an arm is compared; it is always watched in the same way."""
    return watched_spec(spec).replace(
        backend=REFERENCE, options=backend_options(REFERENCE, {}), topology=Topology()
    )


def watched_spec(spec: RunSpec) -> RunSpec:
    """The run as it is watched: full ledgers, one update at a time, nothing saved, not pinned."""
    return as_timed_spec(spec).replace(
        save="record", ledger="full", checkpoint_steps=None, steps_per_execution=1
    )


def as_timed_spec(spec: RunSpec) -> RunSpec:
    """The run as it is timed, but from its beginning, and not pinned, because nothing is timed.

    The number of inter-op threads stays. A parameter server with one such thread, TensorFlow's
    default on a host with one core, waits for ever.
    """
    resources = spec.resources.replace(cores_per_replica=None, intra_op_threads=None)
    return spec.replace(resources=resources, resume_from=None)


def reference_cases(
    spec: RunSpec, sizes: Sequence[int], *, steps: int, seeds: bool
) -> tuple[Case, ...]:
    """What the serial run is asked, so that arms of these sizes can be compared with it.

    Args:
        spec: see `reference_spec`.
        sizes: numbers of replicas above 1.
        steps: updates of the longest case.
        seeds: also the cases of arms whose training has no single right result.
    """
    cases = [
        case.replace(name=f"{case.name}{as_replicas(size)}", virtual_replicas=size, resumed=False)
        for size in (1, *sizes)
        for case in parity_cases(spec, spec, steps=steps, most_replicas=max((1, *sizes)))
    ]
    return (*cases, *(_seed_cases(spec) if seeds else ()))


def as_replicas(size: int) -> str:
    """Suffix of the name of a case that the serial run computes as this number of replicas."""
    return f"-as-{size}" if size > 1 else ""


def parity_cases(watched: RunSpec, timed: RunSpec, *, steps: int, most_replicas: int) -> list[Case]:
    """The cases that are compared with the serial run.

    Args:
        watched: see `watched_spec`.
        timed: see `as_timed_spec`; of the serial run, again the watched one: a fault of what is
            timed must not be in both.
        steps: updates of the longest case.
        most_replicas: among the arms that share a reference; it decides the short batch.
    """
    batch = watched.global_batch
    wide, timed = (spec.replace(precision="float64") for spec in (watched, timed))
    cases = [
        Case(name=WATCHED, spec=wide, steps=steps, tail=part_filled_tail(batch, most_replicas)),
        Case(name=AS_TIMED, spec=timed, steps=steps, tail=low_tail(batch), watch="last"),
        Case(name=RESUMED, spec=wide, steps=min(steps, RESUMED_STEPS), tail=1, resumed=True),
    ]
    if watched.precision != "float64":
        few = min(steps, FLOAT32_STEPS)
        cases.append(Case(name=watched.precision, spec=watched, steps=few, tail=low_tail(batch)))
    return cases


def _seed_cases(spec: RunSpec) -> tuple[Case, ...]:
    """The same training from several seeds; only its start and its end are watched."""
    return tuple(
        Case(
            name=f"seed-{seed}",
            spec=spec.replace(seed=seed, ledger="digest"),
            steps=CONVERGENCE_UPDATES,
            watch="ends",
        )
        for seed in ((spec.seed + offset) % (MAX_SEED + 1) for offset in range(SEEDS))
    )


def on_own_workload(
    spec: RunSpec, workload: str, *, global_batch: int, epochs: int, seed: int
) -> RunSpec:
    """The run of an arm, changed to a small workload of Ringside's own in float64."""
    return spec.replace(
        workload=workload,
        workload_options={},
        data_dir=None,
        global_batch=global_batch,
        gradient_accumulation_steps=1,
        epochs=epochs,
        learning_rate_rule=LearningRateRule(),
        precision="float64",
        pipeline=PipelineOptions(),
        seed=seed,
    )


def counting_case(spec: RunSpec, examples: int, *, name: str = COUNTING, mistake: str = "") -> Case:
    """A case whose final weights show how often each gradient was applied."""
    small = on_own_workload(
        spec,
        "ringside.verify.workloads:counting",
        global_batch=COUNTING_BATCH_PER_REPLICA * spec.topology.num_replicas,
        epochs=COUNTED_EPOCHS,
        seed=spec.seed,
    ).replace(workload_options={"examples": examples})
    return Case(name=name, spec=small, steps=None, watch="last", mistake=mistake)


def counted_examples(replicas: int) -> tuple[int, ...]:
    """Numbers of examples to count: two whole batches, and each kind of short one."""
    batch = COUNTING_BATCH_PER_REPLICA * replicas
    tails = (low_tail(batch), part_filled_tail(batch, replicas), 1)
    return tuple(dict.fromkeys(2 * batch + tail for tail in tails))


def counting_name(examples: int) -> str:
    """The name of the counting case of so many examples."""
    return f"{COUNTING}-{examples}"


def arm_cases(spec: RunSpec, *, exact: bool, steps: int, most_replicas: int) -> tuple[Case, ...]:
    """What an arm is asked.

    Args:
        spec: of its run.
        exact: whether its updates have one right result.
        steps: updates of the longest case.
        most_replicas: among the arms that share a reference.
    """
    watched, timed = watched_spec(spec), as_timed_spec(spec)
    examples = counted_examples(spec.topology.num_replicas)
    counting = [counting_case(watched, n, name=counting_name(n)) for n in examples]
    parity = parity_cases(watched, timed, steps=steps, most_replicas=most_replicas)
    if exact:
        return (*counting, *parity)
    # Constant gradients commute, so these have one right result in any order.
    unwatched = counting_case(timed, examples[0], name=COUNTING_AS_TIMED)
    return (*counting, unwatched, parity[0], *_seed_cases(watched))
