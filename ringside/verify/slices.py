"""A batch in the slices that replicas get, and whether two results are equal up to rounding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import BatchPlan, ByDesign

# Relative to the largest magnitude; larger than the effect of another order of summation. Other
# types are half precisions, with COARSE.
TOLERANCES = {tf.float64: 1e-9, tf.float32: 1e-4}
COARSE = 1e-2


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes:
        by_design: what depends on the split or on chance, and can be allowed for.
        obstacles: what cannot be allowed for; one sentence each.
        random_layers: name and type of each layer that draws random numbers.
        split_layers: name and type of each layer whose output for an example depends on the split.
        true_examples: whether its training step is given true examples only.
        runs: whether it can be called at all in this precision; if not, an obstacle says why.
    """

    by_design: tuple[ByDesign, ...]
    obstacles: tuple[str, ...]
    random_layers: tuple[str, ...]
    split_layers: tuple[str, ...]
    true_examples: bool = False
    runs: bool = True


@dataclass(frozen=True)
class Part:
    """`size` examples from `start` on, of a batch of `of`."""

    start: int
    size: int
    of: int

    def cut(self, nest: Any) -> Any:
        """These examples of a nest of tensors, with their masks."""
        rows = slice(self.start, self.start + self.size)
        return tf.nest.map_structure(lambda one: masked_as(one, one[rows], self.cut), nest)


def slices_of(examples: int, replicas: int) -> list[Part]:
    """The parts of a batch of so many examples that so many replicas get."""
    size = BatchPlan(global_batch=examples, num_replicas=replicas).per_replica_batch
    return [Part(start, size, examples) for start in range(0, examples, size)]


def masked_as(tensor: Any, other: Any, change: Callable[[Any], Any] = lambda mask: mask) -> Any:
    """`other` with the mask that Keras has attached to `tensor`."""
    mask = getattr(tensor, "_keras_mask", None)
    if mask is not None:
        other._keras_mask = change(mask)
    return other


def close(value: Any, reference: Any, scale_of: Any) -> bool:
    """Whether two tensors are equal up to rounding, relative to the largest of `scale_of`."""
    if value.dtype.is_integer or value.dtype.is_bool:
        return np.array_equal(value, reference)
    a, b, of = (np.asarray(one).astype(np.complex128) for one in (value, reference, scale_of))
    scale = np.max(np.abs(of[np.isfinite(of)]), initial=0.0)
    tolerance = TOLERANCES.get(value.dtype.real_dtype, COARSE)
    return np.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True)
