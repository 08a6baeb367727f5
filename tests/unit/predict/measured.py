"""Made-up runs and all-reduces whose truth is known: input for tests of predictions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.specs import (
    Communication,
    Comparison,
    Host,
    Load,
    Outcome,
    Run,
    Shared,
    StackTimings,
    Timing,
)
from tests.unit.stats.factory import (
    arm_of,
    communication_of,
    comparison_of,
    epoch,
    link,
    record,
    run_of,
    spec_of,
)

Floats = NDArray[np.float64]

STACK = "horovod gloo"
SIZES = tuple(4096 * 4**k for k in range(8))
ALPHA_S, BETA_S = 200e-6, 8 / 1e9
GRADIENT = 4 * 2**20
BATCH = 20
HOSTS = tuple(Host(name=name, slots=1) for name in ("left", "right", "third", "fourth"))
SHARED = Shared.from_run(spec_of("serial", global_batch=BATCH), "weak")


def ring_s(ranks: int, size: float) -> float:
    """The textbook's ring, message by message."""
    return sum(ALPHA_S + size / ranks * BETA_S for _ in range(2 * (ranks - 1)))


def run(replicas: int, steps_s: Floats, number: int = 0, *, backend: str = "horovod") -> Run:
    """A run with these steps in each of two epochs, on one host for each replica."""
    arm = arm_of(backend, replicas)
    spec = spec_of(backend, replicas, global_batch=BATCH * replicas)
    ends = tuple(np.cumsum(steps_s).tolist())
    made = epoch(ends[-1], step_end_s=ends, examples=len(ends) * BATCH * replicas)
    many = spec.topology.num_processes
    records = [record(spec, [made, made], n, gradient_bytes=GRADIENT) for n in range(many)]
    return run_of(arm, records, number=number)


def comparison(
    times: Mapping[int, float],
    backend: str = "horovod",
    *,
    steps: int = 30,
    load: Load | None = None,
    **changes: Any,
) -> Comparison:
    """Two rounds of equal steps of so many seconds at each size; the second takes 1 % longer."""
    runs = [
        run(
            size, np.full(steps, times[size] * (1 + 0.01 * number)), number, backend=backend
        ).replace(load=load)
        for number in range(2)
        for size in times
    ]
    fields: dict[str, Any] = {"shared": SHARED, "hosts": HOSTS, **changes}
    return comparison_of([arm_of(backend, size) for size in times], runs, **fields)


def communication(*, ranks: int = 2, **changes: Any) -> Communication:
    """All-reduces of a ring between the first hosts, and the link between two of them."""
    timings = tuple(
        Timing(size_bytes=size, seconds=((ring_s(ranks, size),) * ranks,) * 3, wrong=0)
        for size in SIZES
    )
    stack = StackTimings(stack=STACK, outcome=Outcome(kind="completed"), timings=timings)
    fields: dict[str, Any] = {
        "num_ranks": ranks,
        "hosts": tuple(host.name for host in HOSTS[:ranks]),
        "links": (link("left", "right", 1000),),
    }
    return communication_of([stack], **{**fields, **changes})
