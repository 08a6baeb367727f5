"""What the processes of a stack are asked, and what each of them answers."""

from pathlib import Path
from typing import ClassVar

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ringside_core.specs import Document, Noun
from ringside_core.specs.communication import Operation

REQUEST = "request.json"
# Never timed: caches, connections, the first use of buffers; a tenth of the repetitions if more.
LEAST_WARM_UP = 2
LEAST_REPETITIONS = 5
# For one operation at one size, filling and checking included.
BUDGET_S = 0.5


class Request(Document):
    """Operations at sizes, each repeated.

    Attributes:
        stack: one of ringside.collectives.stacks.STACKS.
        most: repetitions of one size; large arrays have fewer, see `repetitions`.
        budget_s: see there.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    stack: str
    operations: tuple[Operation, ...]
    sizes: tuple[PositiveInt, ...]
    most: PositiveInt
    budget_s: PositiveFloat = BUDGET_S


class RankTimes(Noun):
    """One operation at one size, as one rank saw it.

    Attributes:
        cpu_s: of its process within all the seconds; None: not counted.
    """

    operation: Operation
    size_bytes: PositiveInt
    seconds: tuple[PositiveFloat, ...]
    wrong: NonNegativeInt
    warm_up: NonNegativeInt
    cpu_s: NonNegativeFloat | None = None


class Answer(Document):
    """All that one rank timed."""

    SCHEMA_VERSION: ClassVar[int] = 1

    rank: NonNegativeInt
    times: tuple[RankTimes, ...]


def answer_file(folder: Path, rank: int) -> Path:
    """Where the answer of a rank is."""
    return folder / "times" / f"rank-{rank}.json"


def repetitions(wall_s: float, *, most: int, budget_s: float) -> tuple[int, int]:
    """(warm-up, repetitions) that fit into the budget, from what one repetition takes.

    The slowest rank's `wall_s` goes in, so that all ranks come to the same numbers.
    """
    count = max(min(LEAST_REPETITIONS, most), min(most, int(budget_s / wall_s)))
    return max(LEAST_WARM_UP, count // 10), count
