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
_SILENT = {"Options", "AssertCardinality", "Restructured", "ModelDataset", "Repeat", "Take", "Skip"}
_READS = ("TFRecord", "TextLine", "FixedLengthRecord", "ReadFile", "Snapshot", "Load")


def stages(data: Any) -> list[dict[str, Any]]:
    """The parts of a data set from its source on, each with its own seconds for a global batch.

    Returns:
        For each: `name`; `kind`, one of read, map, python, batch, shuffle and other; `seconds`; and
        `draws`, whether it makes other elements at each reading.
    """
    found, before = [], 0.0
    chain = _chain(data)
    rounds = [[_seconds(part) for part, _ in chain] for _ in range(ROUNDS)]
    for (part, each), times in zip(chain, zip(*rounds, strict=True), strict=True):
        seconds = min(times) * each  # what something else has stopped takes longer
        what = _kind(part)
        own_s = max(0.0, seconds - before)
        found.append({"name": _name(part), "kind": what, "seconds": own_s, "draws": draws(part)})
        before = seconds
    return found


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
        if len(inputs) != 1 or kind(part) in ("FlatMap", "Interleave", "ParallelInterleave"):
            return found[::-1]
        (part,) = inputs


def _seconds(data: Any) -> float:
    """Of one element; data that end begin again."""
    began, halfway, count, counted = time.perf_counter(), 0.0, 0, 0
    # Not a new iterator for each epoch: to free one, TensorFlow waits for its autotuner. And no
    # thread that reads ahead: it would go on beside the next part, and what is Python waits for it.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    for _ in data.repeat().with_options(options):
        now = time.perf_counter()
        if not halfway and now - began > WARM * PERIOD_S:
            halfway, counted = now, count
        count += 1
        if now - began > PERIOD_S:
            break
    ended = time.perf_counter()
    if halfway and count > counted:
        return (ended - halfway) / (count - counted)
    return (ended - began) / max(1, count)


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
