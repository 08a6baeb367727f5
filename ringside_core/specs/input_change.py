"""How data are read: the parts of a data set, and what an author could change.

`ringside input` times the parts and tries the changes.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat

from ringside_core.specs.noun import Noun

StageKind = Literal["read", "map", "python", "batch", "shuffle", "arrays", "object", "other"]
InputName = Literal[
    "prefetch", "parallel_map", "parallel_map_fixed", "unordered", "interleave", "batch_first",
    "cache", "cache_file", "snapshot", "arrays", "dataset",
]  # fmt: skip


class InputStage(Noun):
    """One part of a data set.

    Attributes:
        name: such as `map(decode)`.
        kind: `python`: it runs Python, as a generator does. `arrays`, `object`: fit was given
            arrays, or a Sequence or another object of Python.
        seconds: that it adds to the time of a global batch.
        draws: it makes other elements at each reading.
    """

    name: str
    kind: StageKind
    seconds: NonNegativeFloat
    draws: bool


class InputChange(NamedTuple):
    """One change.

    Attributes:
        needs: what the data must have, a key of NEEDS.
        line: that an author writes, or changes.
        by_default: it is tried unless others are named.
    """

    needs: str
    line: str
    by_default: bool = True


NEEDS = {
    "map": "a tf.data.Dataset with a map",
    "map before batch": "a tf.data.Dataset with a map directly before its batch",
    "files": "a tf.data.Dataset that reads files: TFRecordDataset, TextLineDataset or interleave",
    "dataset": "a tf.data.Dataset",
    "whole batches": "a tf.data.Dataset with an end, of batches of one size but for the last",
    "arrays": "arrays, given to fit",
}

CHANGES: dict[str, InputChange] = {
    "prefetch": InputChange("dataset", "data = data.prefetch(tf.data.AUTOTUNE)  # last"),
    "parallel_map": InputChange("map", "data.map(…, num_parallel_calls=tf.data.AUTOTUNE)"),
    "parallel_map_fixed": InputChange(
        "map", "data.map(…, num_parallel_calls=os.cpu_count())", False
    ),
    "unordered": InputChange(
        "map", "data.map(…, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
    ),
    "interleave": InputChange(
        "files", "tf.data.TFRecordDataset(names, num_parallel_reads=tf.data.AUTOTUNE)"
    ),
    "batch_first": InputChange(
        "map before batch", "data.batch(n).map(…)  # the function gets whole batches"
    ),
    "cache": InputChange(
        "dataset", "data = data.cache()  # behind what is slow, before shuffle and what draws"
    ),
    "cache_file": InputChange("dataset", 'data = data.cache("a name")  # likewise, on disk', False),
    "snapshot": InputChange(
        "dataset", 'data = data.snapshot("a folder")  # likewise, on disk', False
    ),
    "arrays": InputChange("whole batches", "model.fit(x, y, batch_size=n)  # NumPy arrays", False),
    "dataset": InputChange("arrays", "tf.data.Dataset.from_tensor_slices((x, y)).batch(n)"),
}


def possible(stages: Sequence[InputStage]) -> list[str]:
    """The changes that data of these parts can have, in the order in which they are tried."""
    kinds = [one.kind for one in stages]
    if "object" in kinds:
        return []
    there = {"arrays"} if "arrays" in kinds else {"dataset", "whole batches"}
    maps = [place for place, one in enumerate(stages) if one.name.startswith("map")]
    if maps:
        there.add("map")
    if any(kinds[place + 1 : place + 2] == ["batch"] for place in maps):
        there.add("map before batch")
    if "read" in kinds or any(one.name.startswith("interleave") for one in stages):
        there.add("files")
    return [name for name, change in CHANGES.items() if change.needs in there]
