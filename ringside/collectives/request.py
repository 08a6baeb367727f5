"""What the processes of a stack are asked: operations, sizes, repetitions; and what they answer."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ringside_core.specs import Document, Noun, RefusalError
from ringside_core.specs.communication import Operation
from ringside_core.text import byte_size, exact_byte_size

REQUEST = "request.json"
# Repetitions that are not timed: they fill caches, open connections, allocate buffers. At least
# this many, or a tenth of the repetitions if that is more.
LEAST_WARM_UP = 2
LEAST_REPETITIONS = 5
# For one operation at one size; filling the array and checking the result are included.
BUDGET_S = 0.5
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
STEP = 4
ELEMENT_BYTES = 4
ARRAYS = 2  # of each rank: its input, and the result
# From 4096 bytes on, Open MPI sums in another way, so the time per message shows only below that.
DEFAULT_SIZES = "2KiB,4KiB-256MiB"
# The longest time of one operation, if the user names no sizes; there are seven repetitions.
LONGEST_S = 10.0
SIZES_EXAMPLE = "Example: --sizes 4KiB-256MiB (each 4 times the one before), or 1MiB,64MiB."


class Request(Document):
    """Operations at sizes, each repeated.

    Attributes:
        stack: one of ringside.collectives.stacks.STACKS.
        most: largest number of repetitions of one size; large arrays have fewer, see `repetitions`.
        budget_s: seconds for one operation at one size, see `repetitions`.
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
        cpu_s: CPU time of its process within all `seconds`; None: not counted.
    """

    operation: Operation
    size_bytes: PositiveInt
    seconds: tuple[PositiveFloat, ...]
    wrong: NonNegativeInt
    warm_up: NonNegativeInt
    cpu_s: NonNegativeFloat | None = None


class Answer(Document):
    """Everything that one rank timed."""

    SCHEMA_VERSION: ClassVar[int] = 1

    rank: NonNegativeInt
    times: tuple[RankTimes, ...]


def answer_file(folder: Path, rank: int) -> Path:
    """The file with the answer of a rank."""
    return folder / "times" / f"rank-{rank}.json"


def repetitions(wall_s: float, *, most: int, budget_s: float) -> tuple[int, int]:
    """How many (warm-up, repetitions) fit into the budget, if one repetition takes `wall_s`.

    Every rank passes the time of the slowest rank, so that all get the same numbers.
    """
    count = max(min(LEAST_REPETITIONS, most), min(most, int(budget_s / wall_s)))
    return max(LEAST_WARM_UP, count // 10), count


def parse_sizes(text: str, *, ranks: int) -> tuple[int, ...]:
    """Bytes of each array, the small ones first.

    Args:
        text: sizes and ranges, separated by commas; in a range each size is 4 times the one before.
        ranks: an array must have at least one element for each of them.

    Raises:
        RefusalError: not a size, not whole float32 elements, or fewer elements than ranks.
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        first = _parse(low, text)
        last = _parse(high, text) if dash else first
        if last < first:
            raise RefusalError(
                "A range of sizes begins with the smaller.",
                received=repr(part),
                advice=SIZES_EXAMPLE,
            )
        found.add(first)
        while 0 < first * STEP <= last:
            first *= STEP
            found.add(first)
    for size in sorted(found):
        if size % ELEMENT_BYTES or size < ELEMENT_BYTES * ranks:
            raise RefusalError(
                f"A size must be a multiple of {ELEMENT_BYTES} bytes, a float32 element, with one "
                "element for each rank at least.",
                received=f"{size} bytes, {ranks} ranks",
                advice=SIZES_EXAMPLE,
            )
    return tuple(sorted(found))


def fitting(sizes: Sequence[int], *, ranks: int, bits_per_s: float) -> tuple[int, ...]:
    """The smallest size, and all at which no operation takes longer than LONGEST_S on a link.

    The longest operation is push and pull: one rank serves, all others are its workers, and the
    array goes each way once per worker.
    """
    passes = 2 * max(1, ranks - 1)
    return tuple(
        size for size in sizes if size == min(sizes) or passes * 8 * size / bits_per_s <= LONGEST_S
    )


def check_memory(sizes: Sequence[int], *, ranks: int, available_bytes: int) -> None:
    """Refuse arrays that do not fit into memory: each rank has its input and the result.

    Raises:
        RefusalError: 2 · size · ranks is more than `available_bytes`.
    """
    needed = ARRAYS * max(sizes) * ranks
    if needed > available_bytes:
        raise RefusalError(
            "The arrays of all ranks must fit into the memory that is free.",
            received=f"{ranks} ranks, {ARRAYS} arrays of {exact_byte_size(max(sizes))} each: "
            f"{byte_size(needed)}, and {byte_size(available_bytes)} are free",
            advice="Use smaller --sizes, or fewer --replicas.",
        )


def _parse(text: str, whole: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)", text.strip())
    if match is None:
        raise RefusalError(
            "A size is a whole number and B, KiB, MiB or GiB.",
            received=f"{text.strip()!r} in {whole!r}",
            advice=SIZES_EXAMPLE,
        )
    return int(match[1]) * UNITS[match[2]]
