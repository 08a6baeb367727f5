"""Made-up times of all-reduces: input for tests, never a measurement."""

from typing import Any

from ringside_core.specs import Communication, Outcome, StackTimings, Timing
from tests.unit.stats.factory import communication_of


def communication(random: Any) -> Communication:
    """All-reduces of four stacks, by t(n) = α + β·n with noise; a fifth that is not there."""
    stacks = {"mpi": (12e-6, 0.25e-9), "horovod gloo": (90e-6, 0.9e-9)}
    stacks |= {"horovod mpi": (45e-6, 0.35e-9), "tf.distribute RING": (160e-6, 1.1e-9)}
    sizes = [4**power * 4096 for power in range(9)]
    made = [
        StackTimings(
            stack=stack,
            outcome=Outcome(kind="completed"),
            cores=((0,), (1,)),
            timings=tuple(
                Timing(
                    size_bytes=size,
                    wrong=0,
                    seconds=tuple(
                        tuple((alpha + beta * size) * random.lognormal(0, 0.05, 2))
                        for _ in range(5)
                    ),
                )
                for size in sizes
            ),
        )
        for stack, (alpha, beta) in stacks.items()
    ]
    absent = Outcome(kind="refused", reason="needs an NVIDIA GPU: none is found")
    return communication_of([*made, StackTimings(stack="horovod nccl", outcome=absent)])
