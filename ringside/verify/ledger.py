"""The sample ledger's verdict: was each example fed exactly once? No TensorFlow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Place = tuple[int, int]


@dataclass(frozen=True)
class Misfed:
    """An id that was fed too often, or that is no example's.

    Attributes:
        places: (replica, step) of each time, both from 0, in the order of the steps.
    """

    id: int
    places: tuple[Place, ...]


@dataclass(frozen=True)
class LedgerVerdict:
    """How what an epoch was fed differs from each of the ids 0…n-1 once.

    Attributes:
        num_examples: n.
        missing: ids that were never fed, ascending.
        repeated: examples that were fed more than once, by id.
        foreign: ids that are no example's, ascending.
        shown: how many of each kind the finding names.
    """

    num_examples: int
    missing: tuple[int, ...]
    repeated: tuple[Misfed, ...]
    foreign: tuple[Misfed, ...]
    shown: int

    @property
    def passed(self) -> bool:
        """Whether each example was fed once, and nothing else was."""
        return not (self.missing or self.repeated or self.foreign)

    @property
    def finding(self) -> str:
        """One sentence; replicas are named from 0, as in records, steps from 1."""
        if self.passed:
            one = self.num_examples == 1
            return f"{'the example' if one else f'each of {self.num_examples} examples'} once"
        found = []
        if self.missing:
            were = "was" if len(self.missing) == 1 else "were"
            noun = "example" if len(self.missing) == 1 else "examples"
            found.append(f"{noun} {_listed(self.missing, self.shown)} {were} never fed")
        for one_fed in self.repeated[: self.shown]:
            times = f"was fed {len(one_fed.places)} times"
            found.append(f"example {one_fed.id} {times}: {self._places(one_fed)}")
        if (more := len(self.repeated) - self.shown) > 0:
            found.append(f"{more} more {'was' if more == 1 else 'were'} fed more than once")
        for one_fed in self.foreign[: self.shown]:
            found.append(f"id {one_fed.id} is no example's, yet fed: {self._places(one_fed)}")
        if (more := len(self.foreign) - self.shown) > 0:
            found.append(f"{more} more {'id was' if more == 1 else 'ids were'} no example's")
        return "; ".join(found)

    def _places(self, fed: Misfed) -> str:
        return _listed(
            [f"replica {replica} in step {step + 1}" for replica, step in fed.places],
            self.shown,
            last=", ",
        )


def ledger_verdict(fed: NDArray[Any], num_examples: int, *, shown: int = 5) -> LedgerVerdict:
    """Compare what an epoch was fed with each of the ids 0…num_examples-1 once, as multisets.

    Args:
        fed: ids [steps, replicas, per_replica_batch]; below 0: padding, or nothing.
        num_examples: that there are.
        shown: how many examples of each kind the finding names.
    """
    true = fed >= 0
    steps, replicas, _ = np.nonzero(true)
    ids = fed[true]
    known = ids < num_examples
    times = np.bincount(ids[known], minlength=num_examples)
    order = np.argsort(ids, kind="stable")  # the places of an id stay in the order of the steps

    def misfed(numbers: NDArray[Any]) -> tuple[Misfed, ...]:
        begin, end = (np.searchsorted(ids[order], numbers, side) for side in ("left", "right"))
        return tuple(
            Misfed(int(number), tuple(zip(replicas[at].tolist(), steps[at].tolist(), strict=True)))
            for number, b, e in zip(numbers, begin, end, strict=True)
            for at in [order[b:e]]
        )

    return LedgerVerdict(
        num_examples=num_examples,
        missing=tuple(np.flatnonzero(times == 0).tolist()),
        repeated=misfed(np.flatnonzero(times > 1)),
        foreign=misfed(np.unique(ids[~known])),
        shown=shown,
    )


def _listed(items: Sequence[object], shown: int, last: str = " and ") -> str:
    """Items 1, 2 and 3; or 1, 2 and 4 more."""
    names = [str(item) for item in items[:shown]]
    if len(items) > shown:
        return f"{', '.join(names)} and {len(items) - shown} more"
    return last.join(filter(None, [", ".join(names[:-1]), names[-1]]))
