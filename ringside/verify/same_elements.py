"""Is what an arm is fed what the workload holds? Where to look, and how it is judged. Only NumPy.

Cases cut the data, and a ledger knows ids only. So the right id with the element of another example
would not be seen beyond the cut. Here batches of all data are held against the workload's own
elements (ringside/verify/elements.py reads both), at places that are drawn anew each time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from ringside_core.specs import Check, Document, Noun

NAME = "fed elements"
Split = Literal["training", "validation"]
SPLITS: tuple[Split, ...] = ("training", "validation")
# Places of a split that are drawn, beside its first and its last batch.
DRAWN: Mapping[Split, int] = {"training": 4, "validation": 1}


class Place(Noun):
    """A global batch of a split; epoch and step are counted from 0."""

    split: Split
    epoch: NonNegativeInt
    step: NonNegativeInt

    def __str__(self) -> str:
        epoch = f" of epoch {self.epoch + 1}" if self.split == "training" else ""
        return f"batch {self.step + 1}{epoch} ({self.split})"


class Looked(Document):
    """What one process found.

    Attributes:
        seed: with which the places were drawn.
        examples: that it compared.
        places: at which it read.
        reached, batches: global batches of a training epoch among which places were drawn, and all.
        wrong: the first difference, in one sentence; empty: none.

    Schema history: 1 first version.
    """

    seed: NonNegativeInt
    examples: NonNegativeInt = 0
    places: tuple[Place, ...] = ()
    reached: NonNegativeInt = 0
    batches: NonNegativeInt = 0
    wrong: str = ""


def draw_places(split: Split, *, epochs: int, steps: int, seed: int) -> tuple[Place, ...]:
    """The first batch, the last one of an epoch, and some drawn ones; the same in each process.

    Args:
        split: which data.
        epochs: of the run.
        steps: global batches in an epoch.
        seed: of the draw.
    """
    generator = np.random.default_rng([seed, SPLITS.index(split)])
    found = np.vstack([generator.integers((epochs, steps)) for _ in range(1 + DRAWN[split])])
    found[0, 1] = steps - 1
    return tuple(
        Place(split=split, epoch=epoch, step=step)
        for epoch, step in dict.fromkeys([(0, 0), *map(tuple, found.tolist())])  # a set in order
    )


def difference(what: str, fed: Any, own: Any, ids: NDArray[Any]) -> tuple[str, int]:
    """The first example whose fed array is not its own, as a sentence, and its row; else ("", 0).

    Args:
        what: `x`, `y` or `weight`.
        fed: [examples, …] as fed.
        own: [examples, …] of the workload, for the same ids.
        ids: [examples].
    """
    if fed.dtype != own.dtype or fed.shape != own.shape:
        return f"{what} is fed as {_form(fed)}, the workload's own is {_form(own)}", 0
    same = _same(fed, own).reshape(len(ids), -1).all(axis=1)
    if same.all():
        return "", 0
    row = int(np.argmin(same))
    differing = f"{int((~same).sum())} of {len(ids)} examples differ"
    return f"{what} of example {ids[row]} is not the workload's own ({differing})", row


def _form(array: NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"


def _same(fed: NDArray[Any], own: NDArray[Any]) -> NDArray[np.bool_]:
    """Element by element; floating-point numbers up to the rounding of another order of sums."""
    if fed.dtype.kind not in "fc":
        return np.asarray(fed == own)
    largest = float(np.max(np.abs(own[np.isfinite(own)]), initial=0.0))
    tolerance = 64 * float(np.finfo(own.dtype).eps) * largest
    return np.isclose(fed, own, rtol=0.0, atol=tolerance, equal_nan=True)


def fed_elements(looked: Mapping[str, Looked], *, tasks: Sequence[str]) -> Check:
    """Whether every process was fed the workload's own elements, wherever it was looked.

    Args:
        looked: what each process found, by task.
        tasks: processes that must have looked.
    """
    if missing := [task for task in tasks if task not in looked]:
        finding = f"{', '.join(missing)} did not look at what it is fed"
        return Check(name=NAME, passed=False, finding=finding)
    for task, one in looked.items():
        if one.wrong:
            finding = f"{one.wrong} ({task}; places drawn with seed {one.seed})"
            return Check(name=NAME, passed=False, finding=finding)
    examples = sum(one.examples for one in looked.values())
    if not examples:
        return Check(name=NAME, passed=False, finding="nothing was looked at")
    first = next(iter(looked.values()))
    among = (
        f" (training: among the first {first.reached} of {first.batches} batches)"
        if first.reached < first.batches
        else ""
    )
    finding = (
        f"x, y and weight of {examples} examples, at {len(first.places)} places drawn with seed "
        f"{first.seed}{among}, are the workload's own"
    )
    return Check(name=NAME, passed=True, finding=finding)
