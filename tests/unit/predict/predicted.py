"""Made-up runs and all-reduces whose truth is known: input for tests of predictions."""

from collections.abc import Sequence
from typing import Any

from ringside.predict.allreduce_growth import PairCurve
from ringside.predict.inputs import Measured, StackInputs
from ringside_core.specs import (
    Arm,
    Communication,
    Comparison,
    Host,
    Outcome,
    Run,
    Shared,
    StackTimings,
    Timing,
)
from ringside_core.specs.communication import Link
from tests.unit.stats.factory import (
    MACHINE,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    spec_of,
)

SIZES = tuple(4096.0 * 2**k for k in range(17))
ALPHA_S, BETA_S = 200e-6, 8 / 1e9
GRADIENT = 4 * 2**20
BATCH = 20
HOSTS = ("left", "right")
NAMES = (*HOSTS, *(f"host{number}" for number in range(3, 9)))
SHARED = Shared.from_run(spec_of("serial", global_batch=BATCH), "weak")


def curve(alpha: float = ALPHA_S, beta: float = BETA_S, rate: float | None = 1e9) -> PairCurve:
    """t₂(n) = 2α + n·β."""
    return PairCurve(SIZES, tuple(2 * alpha + size * beta for size in SIZES), rate)


def ring_s(ranks: int, size: float, alpha: float = ALPHA_S, beta: float = BETA_S) -> float:
    """The textbook's ring."""
    return 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size * beta


def inputs(
    alone: Sequence[float], two: Sequence[float], *, batch: int = BATCH, **changes: Any
) -> StackInputs:
    """A stack with a ring, weak scaling."""
    fields: dict[str, Any] = {
        "label": "horovod",
        "stack": "horovod gloo",
        "alone": (Measured(batch, 1, tuple(alone)),),
        "two": Measured(2 * batch, 2, tuple(two)),
        "gradient_bytes": GRADIENT,
        "curve": curve(),
        "curve_error": 0.02,
    }
    return StackInputs(**{**fields, **changes})


def run_at(
    arm: Arm,
    step_s: float,
    *,
    number: int = 0,
    per_replica: int = BATCH,
    names: Sequence[str] = (),
    examples: int = 0,
) -> Run:
    """A run in which each step takes so long, whole batches.

    Args:
        arm: that was run.
        step_s: seconds.
        number: of the round.
        per_replica: examples.
        names: host of each rank; empty: all on one.
        examples: of an epoch; 0: two steps.
    """
    batch = per_replica * arm.replicas
    spec = spec_of(arm.backend, arm.replicas, global_batch=batch, options=arm.options)
    steps = examples // batch or 2
    epochs = [epoch(s, examples=steps * batch) for s in (9.0, steps * step_s)]
    count = 1 if arm.backend == "parameter_server" else arm.replicas
    role = "coordinator" if arm.backend == "parameter_server" else "replica"
    machines = [MACHINE.replace(host=name) for name in names] or [MACHINE] * count
    records = [
        record(spec, epochs, rank, gradient_bytes=GRADIENT, role=role, machine=machines[rank])
        for rank in range(count)
    ]
    if arm.backend == "parameter_server":
        extra = [
            record(spec, [], n, role="server", task=f"server-{n}", is_chief=False)
            for n in range(1, arm.replicas + 2)
        ]
        records += extra
    return run_of(arm, records, number=number)


def comparison(
    times: dict[int, float],
    backend: str = "horovod",
    *,
    rounds: int = 2,
    examples: int = 0,
    **changes: Any,
) -> Comparison:
    """Runs of one stack at these sizes, weak scaling, on hosts with one slot each or as told."""
    named = tuple(Host(name=name, slots=1) for name in NAMES)
    hosts: tuple[Host, ...] = changes.get("hosts", named)
    names = [host.name for host in hosts for _ in range(host.slots)]
    arms = [arm_of(backend, replicas) for replicas in times]
    runs = [
        run_at(
            arm,
            times[arm.replicas] * (1 + 0.01 * number),
            number=number,
            names=names[: arm.replicas],
            examples=examples,
        )
        for number in range(rounds)
        for arm in arms
    ]
    fields: dict[str, Any] = {"shared": SHARED, "hosts": hosts}
    return comparison_of(arms, runs, **{**fields, **changes})


def communication(
    stack: str = "horovod gloo", *, hosts: tuple[str, ...] = HOSTS, rate: float = 1e9
) -> Communication:
    """All-reduces among two, by t₂(n) = 2α + n·β, and the link between them."""
    timings = tuple(
        Timing(
            operation="allreduce",
            size_bytes=int(size),
            seconds=((2 * ALPHA_S + size * BETA_S,) * 2,) * 3,
            wrong=0,
        )
        for size in SIZES
    )
    links = (Link(sender=HOSTS[0], receiver=HOSTS[1], tool="tcp", bytes=int(rate / 8), seconds=1),)
    return Communication(
        created_unix_s=0,
        command="ringside allreduce",
        machine=MACHINE,
        code_version="",
        num_ranks=2,
        stacks=(StackTimings(stack=stack, outcome=Outcome(kind="completed"), timings=timings),),
        hosts=hosts,
        links=links if hosts else (),
    )
