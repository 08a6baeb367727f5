"""Trace: everything that one process saw of one case, as arrays by name."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ringside_core.archives import read_arrays
from ringside_core.specs import RefusalError, whole_file

_META, _GAP = "meta", "replica_gap"


@dataclass
class Trace:
    """What one process saw of a watched training.

    Attributes:
        weights: [steps + 1, elements] by variable; the first row is before the first update. For
            large models a fixed sample of the elements. Empty if only the end was watched.
        slots: the same by optimizer variable; one row if only the end was watched.
        final: all elements by variable, after the last update.
        replica_gap: [steps] largest difference between two replicas of this process.
        metrics, evaluation: [epochs] by name: of the training, and of the validation split.
        predictions: [validation examples, …] by output, after the last update.
        before: evaluation and predictions before the first update, by name.
        meta: facts that need no array: error, digests, counts.
    """

    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    slots: dict[str, NDArray[Any]] = field(default_factory=dict)
    final: dict[str, NDArray[Any]] = field(default_factory=dict)
    replica_gap: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    metrics: dict[str, NDArray[Any]] = field(default_factory=dict)
    evaluation: dict[str, NDArray[Any]] = field(default_factory=dict)
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    before: dict[str, NDArray[Any]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Number of updates that were seen."""
        return len(self.replica_gap)

    def is_trained(self, weight: str) -> bool:
        """Whether an optimizer may update a weight; statistics and counters change otherwise."""
        return bool(self.meta.get("trained", {}).get(weight, True))

    def since(self, epochs: int) -> "Trace":
        """What of this trace a training would have seen that begins after so many of its epochs.

        Its `before` is the evaluation of the epoch before; there are no predictions of that time.
        """
        done = sum(self.meta["updates"][:epochs])
        later = {
            name: {key: rows[done:] for key, rows in getattr(self, name).items()}
            for name in ("weights", "slots")
        } | {
            name: {key: rows[epochs:] for key, rows in getattr(self, name).items()}
            for name in ("metrics", "evaluation")
        }
        lists = {key: one[epochs:] for key, one in self.meta.items() if isinstance(one, list)}
        return replace(
            self,
            **later,
            replica_gap=self.replica_gap[done:],
            before={name: np.array(rows[epochs - 1]) for name, rows in self.evaluation.items()},
            meta={**self.meta, **lists},
        )

    @property
    def error(self) -> str:
        """The error that ended the training early, its class and message; empty: there was none."""
        return str(self.meta.get("error", ""))

    def write(self, path: Path) -> None:
        """Write as .npz; a reader sees the whole file or none."""
        arrays = {
            f"{group}|{name}": array
            for group in _GROUPS
            for name, array in getattr(self, group).items()
        }
        with whole_file(path) as stream:
            meta = np.array(json.dumps(self.meta))
            np.savez(stream, **{_META: meta, _GAP: self.replica_gap}, **arrays)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `write` wrote.

        Raises:
            RefusalError: no such file, or a damaged one.
        """
        try:
            arrays = read_arrays(path)
            trace = cls(meta=dict(json.loads(str(arrays.pop(_META)))))
            trace.replica_gap = arrays.pop(_GAP)
            groups = {group: getattr(trace, group) for group in _GROUPS}
            for key, array in arrays.items():
                group, _, name = key.partition("|")
                groups[group][name] = array
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise RefusalError("A trace must be whole.", received=f"{path}: {error}") from None
        return trace


_GROUPS = ("weights", "slots", "final", "metrics", "evaluation", "predictions", "before")
