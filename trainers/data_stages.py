"""How long each part of a data set takes for a batch: what an input waits for.

Each part is read alone with all that stands before it; what it adds to the time of those is its
own. A part that works ahead adds only what it cannot hide.
"""

import re
import time
from typing import Any

from ringside_core.keras import tf
from trainers.data_graph import draws, kind, operations_of, runs_python

PERIOD_S = 0.8  # in which a part is read; the second half of it counts
ROUNDS = 3
WARM = 0.5
# What makes no elements of its own, and is part of what stands before it.
_SILENT = {"Options", "AssertCardinality", "Restructured", "Repeat", "Take", "Skip"}
# How many elements these make of one is not known: with what stands before them they are a source.
_SOURCES = {"FlatMap", "Interleave", "ParallelInterleave", "Unbatch", "Rebatch", "Filter"}
_READS = ("TFRecord", "TextLine", "FixedLengthRecord", "ReadFile", "Snapshot", "Load")


def stages(data: Any) -> list[dict[str, Any]]:
    """The parts of a data set from its source on, each with its own seconds for a global batch.

    Returns:
        For each: `name`; `kind`, one of read, map, python, batch, shuffle and other; `seconds`; and
        `draws`, whether it makes other elements at each reading.
    """
    chain, rounds = _chain(data), []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        rounds.append([_seconds(part) for part, _ in chain])
        if time.perf_counter() - began > 2 * PERIOD_S * len(chain):  # slow to begin, as a shuffle
            break
    found: list[dict[str, Any]] = []
    before = 0.0
    for (part, each), times in zip(chain, zip(*rounds, strict=True), strict=True):
        seconds = min(times) * each  # what something else has stopped takes longer
        if "Cache" in kind(part):  # what stands before it is made once
            found = [{**one, "seconds": 0.0} for one in found]
            before = 0.0
        own_s = max(0.0, seconds - before)
        found.append(
            {"name": _name(part), "kind": _kind(part), "seconds": own_s, "draws": draws(part)}
        )
        before = seconds
    return found


def rows_per_second(data: Any, rows: int) -> float | None:
    """Rows of a data set that one process reads in a second; None: that says nothing of a training.

    So it is of data that are kept behind their first epoch, and of those that cannot be read on:
    what their author's code raises in a later batch is reported by the training.

    Args:
        data: a data set of batches.
        rows: of a batch.
    """
    try:
        if any("Cache" in kind(part) for part, _ in _chain(data)):
            return None
        seconds = _seconds(data)
    except Exception:
        return None
    return rows / seconds if seconds else None


def _chain(data: Any) -> list[tuple[Any, int]]:
    """The parts from the source on, and how many elements of each make a batch.

    Of parts that are made of several data sets, these are one source.
    """
    found, each = [], 1
    part = data
    while True:
        if kind(part) not in _SILENT:
            found.append((part, each))
        if "Batch" in kind(part):
            each *= int(getattr(part, "_batch_size", 1))
        inputs = part._inputs()
        if len(inputs) != 1 or kind(part) in _SOURCES:
            return found[::-1]
        (part,) = inputs


def _seconds(data: Any) -> float:
    """Of one element, behind the first; data that end begin again."""
    # Not a new iterator for each epoch: to free one, TensorFlow waits for its autotuner. And no
    # thread that reads ahead: it would go on beside the next part, and what is Python waits for it.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    made, began = iter(data.repeat().with_options(options)), time.perf_counter()
    if next(made, None) is None:
        return 0.0
    first_s = time.perf_counter() - began
    ends = [time.perf_counter()]
    while ends[-1] - ends[0] < PERIOD_S and next(made, None) is not None:
        ends.append(time.perf_counter())
    if len(ends) < 2:
        return first_s
    half = next(k for k, end in enumerate(ends) if end - ends[0] >= WARM * (ends[-1] - ends[0]))
    half = min(half, len(ends) - 2)
    return (ends[-1] - ends[half]) / (len(ends) - 1 - half)


def _kind(part: Any) -> str:
    what = kind(part)
    if runs_python(part):
        return "python"
    if any(word in what for word in _READS) or any(
        op.startswith(_READS) for op in operations_of(part)
    ):
        return "read"
    for word in ("Map", "Batch", "Shuffle"):
        if word in what and what != "FlatMap":
            return word.lower()
    return "other"


def _name(part: Any) -> str:
    """`map(decode)` of a map of a function of that name."""
    what = kind(part).removesuffix("DatasetV2")
    what = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", what).lower()
    what = {"parallel_map": "map", "parallel_batch": "batch", "tensor_slice": "arrays"}.get(
        what, what
    )
    names = [
        re.sub(r"^__inference_Dataset_(flat_)?[a-z]+_(\w+?)_\d+$", r"\2", name.decode())
        for name in (function.function.name for function in part._functions())
    ]
    return f"{what}({', '.join(names)})" if names else what
