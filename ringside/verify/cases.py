"""The cases of a certificate: what an arm and the serial reference are asked to train.

Each parity case ends its epochs with another kind of short batch. The first case, in float64, is
watched after each update, and stopped and resumed between its epochs. What is timed is not watched,
so it is run once more as it is timed. A model that cannot run in float64 runs all cases in float32.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ringside.verify.request import (
    Case,
    low_tail,
    part_filled_tail,
    states_folder,
)
from ringside_core.specs import (
    REFERENCE,
    PipelineOptions,
    RunSpec,
    Topology,
    backend_options,
)
from ringside_core.specs.run_spec import MAX_SEED, LearningRateRule

WATCHED = "watched"
AS_TIMED = "as-timed"
SINGLE = "single-updates"
# Ends the name of a case of the serial run that is another one with other rounding.
ROUNDED = "-rounded"
DRAWS = "draws"
COUNTING = "counting"
COUNTING_AS_TIMED = "counting-as-timed"
# Epochs of the counting workload (workloads.py).
COUNTED_EPOCHS = 2
COUNTING_BATCH_PER_REPLICA = 6
# Whole batches of an epoch; of asynchronous workers, where nothing else shows what is lost later.
COUNTED_BATCHES, COUNTED_BATCHES_ASYNCHRONOUS = 2, 30
SEEDS = 5
CONVERGENCE_UPDATES = 60


def reference_spec(spec: RunSpec) -> RunSpec:
    """The serial run with which an arm is compared; it is always watched in the same way.

    `Model.fit` trains it, whoever trains the arm; a model of Keras 3 has the loop only.
    """
    return watched_spec(spec).replace(
        backend=REFERENCE,
        options=backend_options(REFERENCE, {}),
        topology=Topology(),
        trained_by="fit" if spec.keras == 2 else "loop",
        as_shipped=False,
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
    spec: RunSpec, sizes: Sequence[int], *, run_dir: Path, steps: int
) -> tuple[Case, ...]:
    """What the serial run is asked, so that arms of these sizes can be compared with it.

    Args:
        spec: see `reference_spec`.
        run_dir: folder of the serial run.
        sizes: numbers of replicas above 1.
        steps: updates of the longest case.
    """
    # Also what arms train unwatched or in two parts: a race, or a fault of resuming, must not be in
    # both.
    cases = [
        case.replace(
            virtual_replicas=size,
            watch="steps",
            resumed=False,
            keep_states=case.name == SINGLE,
            plain=case.name == WATCHED and size == 1,
        )
        for size in (1, *sizes)
        for case in parity_cases(spec, spec, steps=steps, most_replicas=max((1, *sizes)))
    ]
    return tuple(one for case in cases for one in _with_other_rounding(case, run_dir))


def reference_seeds(spec: RunSpec, workers: Sequence[int]) -> tuple[Case, ...]:
    """What the serial run is asked for arms whose training has no single right result.

    Args:
        spec: see `reference_spec`.
        workers: sizes of those arms.
    """
    updates = (1, *workers) if workers else ()
    return tuple(case for number in updates for case in _seed_cases(spec, number))


def _with_other_rounding(case: Case, run_dir: Path) -> Iterator[Case]:
    """A case of the serial run, and what shows how much of it is rounding."""
    suffix = as_replicas(case.virtual_replicas)
    own = case.replace(name=f"{case.name}{suffix}")
    twin = own.replace(name=f"{case.name}{ROUNDED}{suffix}", keep_states=False, plain=False)
    yield own
    if case.keep_states:
        states = states_folder(run_dir, own.name).absolute()
        wide = case.spec.replace(precision="float64")
        yield twin.replace(spec=wide, states=str(states))
    else:
        yield twin.replace(moved=True)  # not run where rounding does not matter


def in_float32(case: Case) -> Case:
    """A case of a model that cannot run in float64.

    Rounding is then seen by moving the weights before each update.
    """
    moved = case.moved or (case.spec.precision == "float64" and bool(case.states))
    return case.replace(spec=case.spec.replace(precision="float32"), moved=moved)


def as_replicas(size: int) -> str:
    """Suffix of the name of a case that the serial run computes as this number of replicas."""
    return f"-as-{size}" if size > 1 else ""


def has_one_result(spec: RunSpec) -> bool:
    """Whether the updates of a run have one right result."""
    return spec.capabilities.synchronous or spec.topology.num_replicas == 1


def can_resume(spec: RunSpec) -> bool:
    """Whether a run of this kind can go on from a checkpoint to the one right result."""
    return has_one_result(spec) and spec.options.passes_per_reduction == 1


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
        Case(
            name=WATCHED,
            spec=wide,
            steps=steps,
            tail=part_filled_tail(batch, most_replicas),
            resumed=can_resume(watched),
        ),
        Case(name=AS_TIMED, spec=timed, steps=steps, tail=1, watch="last"),
    ]
    if watched.precision != "float64":
        cases.append(Case(name=SINGLE, spec=watched, steps=steps))
    return cases


def in_updates(workers: int) -> str:
    """Suffix of the name of a case in which the serial run makes as many updates as these."""
    return f"-in-{workers}" if workers > 1 else ""


def _seed_cases(spec: RunSpec, updates_per_batch: int = 1) -> tuple[Case, ...]:
    """The same training from several seeds; only its start and its end are watched."""
    return tuple(
        Case(
            name=f"seed-{seed}{in_updates(updates_per_batch)}",
            spec=spec.replace(seed=seed, ledger="digest"),
            steps=CONVERGENCE_UPDATES,
            watch="ends",
            updates_per_batch=updates_per_batch,
        )
        for seed in ((spec.seed + offset) % (MAX_SEED + 1) for offset in range(SEEDS))
    )


def counting_case(
    spec: RunSpec,
    examples: int,
    *,
    name: str,
    own_loss: bool = False,
) -> Case:
    """A case, in float64, whose final weights show how often each gradient was applied."""
    small = spec.replace(
        workload="ringside.verify.workloads:counting",
        workload_options={"examples": examples, "own_loss": own_loss},
        data_dir=None,
        global_batch=COUNTING_BATCH_PER_REPLICA * spec.topology.num_replicas,
        gradient_accumulation_steps=1,
        epochs=COUNTED_EPOCHS,
        learning_rate_rule=LearningRateRule(),
        precision="float64",
        pipeline=PipelineOptions(),
    )
    return Case(name=name, spec=small, steps=None, watch="last")


def counted_examples(replicas: int, *, synchronous: bool) -> tuple[int, ...]:
    """Numbers of examples to count: some whole batches, and each kind of short one."""
    batch = COUNTING_BATCH_PER_REPLICA * replicas
    first, *others = dict.fromkeys((low_tail(batch), part_filled_tail(batch, replicas), 1))
    most = COUNTED_BATCHES if synchronous else COUNTED_BATCHES_ASYNCHRONOUS
    return (most * batch + first, *(COUNTED_BATCHES * batch + tail for tail in others))


def counting_name(examples: int) -> str:
    """The name of the counting case of so many examples."""
    return f"{COUNTING}-{examples}"


def arm_cases(
    spec: RunSpec,
    *,
    exact: bool,
    steps: int,
    most_replicas: int,
    states: Path,
    draws: bool,
    true_examples: bool,
    wide: bool,
) -> tuple[Case, ...]:
    """What an arm is asked.

    Args:
        spec: of its run.
        exact: whether its updates have one right result.
        steps: updates of the longest case.
        most_replicas: among the arms that share a reference.
        states: folder with the states of the reference before each single update.
        draws: whether layers draw random numbers.
        true_examples: whether the model is given true examples only (trainers/whole_batch.py).
            What counts gradients is trained in the same way.
        wide: whether the model can run in float64.
    """
    watched, timed = watched_spec(spec), as_timed_spec(spec)
    examples = counted_examples(spec.topology.num_replicas, synchronous=exact)
    count = partial(counting_case, own_loss=true_examples)
    counting = [count(watched, n, name=counting_name(n)) for n in examples]
    parity = [
        case.replace(states=str(states.absolute())) if case.name == SINGLE else case
        for case in parity_cases(watched, timed, steps=steps, most_replicas=most_replicas)
    ]
    if not wide:
        parity = [in_float32(case) for case in parity]
    if draws and spec.topology.num_replicas > 1:
        counting.append(Case(name=DRAWS, spec=timed, steps=None, watch="draws"))
    if exact:
        return (*counting, *parity)
    # Constant gradients commute, so these have one right result in any order.
    unwatched = count(timed, examples[0], name=COUNTING_AS_TIMED)
    return (*counting, unwatched, parity[0], *_seed_cases(watched))
