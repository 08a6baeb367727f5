"""What the processes of a stack are asked: sizes and repetitions; and what they answer."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import PositiveFloat, PositiveInt

from ringside_core.specs import Document, RefusalError, Timing
from ringside_core.text import byte_size

REQUEST = "request.json"
LEAST_WARM_UP = 2  # repetitions that fill caches, open connections, allocate buffers
LEAST_REPETITIONS, MOST_REPETITIONS = 5, 200
BUDGET_S = 0.5  # for one size; filling the array and checking the result are included
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
ELEMENT_BYTES = 4
ARRAYS = 4  # of each rank: its input, a tensor of it, the result, and what it should be
# From 4096 bytes on, Open MPI sums in another way, so the time per message shows only below that.
DEFAULT_SIZES = "2KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB"
LONGEST_S = 10.0  # of one operation, if the user names no sizes; there are seven repetitions


class Request(Document):
    """All-reduces of some sizes, each repeated for `budget_s` seconds; see `repetitions`."""

    stack: str
    sizes: tuple[PositiveInt, ...]
    budget_s: PositiveFloat


class Answer(Document):
    """Everything that one rank timed; each timing has one rank."""

    timings: tuple[Timing, ...]


def answer_file(folder: Path, rank: int) -> Path:
    """The file with the answer of a rank."""
    return folder / "times" / f"rank-{rank}.json"


def repetitions(wall_s: float, budget_s: float) -> tuple[int, int]:
    """How many (warm-up, repetitions) fit into the budget; one takes `wall_s` on every rank."""
    count = max(LEAST_REPETITIONS, min(MOST_REPETITIONS, int(budget_s / wall_s)))
    return max(LEAST_WARM_UP, count // 10), count


def parse_sizes(text: str, *, ranks: int) -> tuple[int, ...]:
    """Bytes of each array, the small ones first; text: sizes with commas between.

    Raises:
        RefusalError: not a size, not whole float32 elements, or fewer elements than ranks.
    """
    found = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(B|KiB|MiB|GiB)\s*", part)
        size = int(match[1]) * UNITS[match[2]] if match else 0
        if size % ELEMENT_BYTES or size < ELEMENT_BYTES * ranks:
            raise RefusalError(
                "A size is a whole number and B, KiB, MiB or GiB: whole float32 elements of "
                f"{ELEMENT_BYTES} bytes, one for each rank at least.",
                received=f"{part.strip()!r} in {text!r}, {ranks} ranks",
                advice="Example: --sizes 4KiB,1MiB,64MiB.",
            )
        found.add(size)
    return tuple(sorted(found))


def fitting(sizes: Sequence[int], bits_per_s: float) -> tuple[int, ...]:
    """The smallest size, and all that a ring sends over a link within LONGEST_S."""
    largest = LONGEST_S * bits_per_s / 8 / 2  # a ring sends an array twice, see share_of_link
    return tuple(size for size in sizes if size == min(sizes) or size <= largest)


def check_memory(sizes: Sequence[int], *, ranks: int, available_bytes: int) -> None:
    """Refuse arrays that do not fit into memory."""
    needed = ARRAYS * max(sizes) * ranks
    if needed > available_bytes:
        raise RefusalError(
            "The arrays of all ranks must fit into the memory that is free.",
            received=f"{byte_size(needed)} needed, {byte_size(available_bytes)} free",
            advice="Use smaller --sizes, or fewer --replicas.",
        )
