"""Find out by experiment whether an author's own training step can be divided among replicas.

The step runs on a whole batch, then on the same batch again, then on the slices that replicas would
get, always from the same state. What it hands to its optimizers is compared and not applied.
"""

import threading
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np

from ringside.verify.example_random import (
    SEVERAL,
    ExampleStream,
    described,
    drawing_layers,
    drew_several,
    tie_to_examples,
)
from ringside.verify.slices import Inspection, Part, close, slices_of
from ringside_core.keras import (
    generator_of,
    get_weights,
    is_of_keras,
    on_apply,
    optimizers_of,
    python_of,
    raw,
    set_weights,
    tf,
    weights_of,
)
from ringside_core.specs import ByDesign, RefusalError
from ringside_core.users_errors import in_one_line
from ringside_core.workloads.weights import labels, packed
from ringside_core.workloads.without_horovod import without_reductions
from ringside_core.workloads.workload import Workload
from trainers.gather import Together, gathering
from trainers.ledger import current_ids, feeding
from trainers.own_trial import check_made_before, step_name
from trainers.results import counted_by
from trainers.sums import are_sums, noting_sums
from trainers.virtual_replicas import TOGETHER, run_together

Gradients = list[Any]


def inspect_own_step(
    model: Any, workload: Workload, batch: tuple[Any, Any], splits: Sequence[Sequence[Part]]
) -> Inspection:
    """What of a training step depends on chance, or on how a batch is split.

    Args:
        model: with a train_step of its author's; layers must run in Python.
        workload: of the model.
        batch: (x, y) of one global batch.
        splits: the slices that replicas get, for each number of replicas.
    """
    if workload.optimizer is not None:
        optimizer = workload.optimizer_of(model)
        model.compile(optimizer, workload.loss, weighted_metrics=workload.metrics())
    drawn = tie_to_examples(model, current_ids, lambda: tf.constant(0, tf.int64))
    step = _Step(model, batch, drawn, of_arrays=workload.train.of_arrays)
    examples = int(tf.nest.flatten(batch[0])[0].shape[0])
    whole_part = Part(0, examples, examples)
    step.look_for_sums()
    before = step.draws
    whole = step.gradients(whole_part)
    draws = step.draws - before
    again = step.gradients(whole_part)
    name, obstacles, coupled = step_name(model), [], False
    if not _alike(whole, again):
        obstacles.append(f"{name} draws random numbers that Ringside cannot tie to the example")
    else:
        told = _differences(step, splits, whole, draws)
        coupled = told.pop(_COUPLED, "") is None
        several = [described(one) for one in drawing_layers(model) if drew_several(one)]
        if coupled and several:  # which of both it is cannot be told
            told, coupled = {f"has {', '.join(several)}, which {SEVERAL}": None}, False
        obstacles += [f"{name} {what}" for what in told if what]
    if not obstacles and (kept := step.assigned([whole_part, *(splits[0] if splits else ())])):
        obstacles.append(f"{name} assigns {', '.join(kept)} {_ASSIGNED}")
    tied = [generator_of(layer).by_design for layer in drawing_layers(model) if _drew(layer)]
    drawing = (*tied, *drawn.by_design)
    return Inspection(
        by_design=(*drawing, ByDesign(layer=name, split=True, **_PARTS)) if coupled else drawing,
        obstacles=tuple(obstacles),
        random_layers=tuple(one.layer for one in drawing),
        split_layers=(name,) if coupled else (),
        true_examples=True,
    )


_CONSTANT = (
    "draws random numbers for a constant number of examples, so that they belong to none: take the "
    "number from the batch, as tf.shape(x)[0]"
)
_ASSIGNED = (
    "from its batch: under Horovod and under every strategy each replica would keep another one, "
    "of its own part"
)
_GROWS = "so its gradients grow with the batch of a replica: make it a mean"
# A step that gives other gradients when its batch is split.
_COUPLED = "couples the examples of its batch"
_PARTS = {
    "differs": "the gradients, which are those of each replica's part of the batch",
    "treated": "checked against a serial run that makes the step part by part",
}


class _Step:
    """The author's step, run without being applied."""

    def __init__(
        self, model: Any, batch: tuple[Any, Any], drawn: ExampleStream, *, of_arrays: bool
    ) -> None:
        self._model, self._batch, self._of_arrays = model, batch, of_arrays
        self._drawn = drawn
        self._here = threading.local()  # parts that gather rows run in turns, in threads
        self._sums = False
        for number, optimizer in enumerate(optimizers_of(model)):
            on_apply(optimizer, partial(self._note, number))
        self._weights = weights_of(model)
        self._state = get_weights(model)

    @property
    def draws(self) -> int:
        """How many draws were tied to the examples so far."""
        return self._drawn.draws

    def _note(self, number: int, apply: Any, gradients: list[Any], variables: list[Any]) -> None:
        del apply, variables
        given = [gradient for gradient in gradients if gradient is not None]
        self._here.handed.setdefault(number, []).extend(map(tf.convert_to_tensor, given))

    def look_for_sums(self) -> None:
        """See whether its losses are sums, which grow with the batch (trainers/sums.py)."""
        x, y = self._batch
        data = packed(x, labels(y), None, of_arrays=self._of_arrays)
        share = tf.ones([], tf.keras.backend.floatx())
        with noting_sums() as seen:
            self._run(data, share, None)
        if seen:
            with suppress(Exception):  # of a step that needs its whole batch: training refuses it
                self._sums = are_sums(self._few, data)

    def _few(self, data: Any, by: float) -> dict[int, list[Any]]:
        self._sums = by != 1.0
        try:
            return self._run(data, tf.constant(by, tf.keras.backend.floatx()), None)
        finally:
            self._sums = False

    def _run(
        self, data: Any, share: Any, examples: int | None, start: int = 0, whole: Any = None
    ) -> dict[int, list[Any]]:
        """What the step hands to each optimizer for a batch, which is this share of a whole one."""
        set_weights(self._model, self._state)
        self._here.handed = handed = dict[int, list[Any]]()
        size = int(tf.nest.flatten(data)[0].shape[0])
        ids = start + tf.range(size, dtype=tf.int64)
        counts = counted_by(share, None, examples, sums=self._sums)
        with feeding(ids), counts, whole or nullcontext(), without_reductions():
            python_of(self._model.train_step)(data)
        check_made_before(self._model, self._weights)
        return handed

    def gradients(self, part: Part, together: Together | None = None) -> Gradients:
        """What the step hands to its optimizers for a part of the batch."""
        x, y = part.cut(self._batch)
        share = tf.constant(part.size / part.of, tf.keras.backend.floatx())
        data = packed(x, labels(y), None, of_arrays=self._of_arrays)
        whole = gathering(together, share, part.size)
        handed = self._run(data, share, part.of, part.start, whole)
        return [gradient for of_one in handed.values() for gradient in of_one]

    def assigned(self, parts: Sequence[Part]) -> list[str]:
        """The variables of the author's own that the step leaves otherwise for another part.

        What layers of Keras keep, such as moving statistics, is allowed for elsewhere.
        """
        of_keras = {
            id(raw(one))
            for layer in self._model._flatten_layers()
            if is_of_keras(type(layer)) and len([*layer._flatten_layers()]) == 1
            for one in layer.weights
        }
        own = [one for one in self._weights if id(one) not in of_keras]
        found: dict[str, None] = {}
        first: list[Any] = []
        for part in parts if own else ():
            self.gradients(part)
            left = [np.array(one) for one in own]
            first = first or left
            for variable, value, other in zip(own, left, first, strict=True):
                if not np.allclose(value, other, rtol=1e-4):
                    found[variable.name.partition(":")[0]] = None
        return list(found)

    def of_replicas(self, parts: Sequence[Part]) -> list[Gradients]:
        """The same for replicas that have these parts."""
        return run_together([partial(self.gradients, part, TOGETHER) for part in parts])


def _differences(
    step: _Step, splits: Sequence[Sequence[Part]], whole: Gradients, draws: int
) -> dict[str, None]:
    """`_difference` of each split, or how the step ends on the first slices on which it ends."""
    told: dict[str, None] = {}
    for slices in splits:
        try:
            told[_difference(step, slices, whole, draws)] = None
        except RefusalError:
            raise
        except Exception as error:  # of the user's step, which ran on the whole batch
            told[
                f"cannot be called on {slices[0].size} of {slices[0].of} examples, a replica's "
                f"part: {in_one_line(error)}; take sizes from the batch, as tf.shape(x)[0]"
            ] = None
            break
    return told


def _difference(step: _Step, slices: Sequence[Part], whole: Gradients, draws: int) -> str:
    """How the slices' gradients fail to make up those of the whole batch; empty: they do."""
    before = step.draws
    handed = step.of_replicas(slices)
    if step.draws - before != draws * len(slices):
        return _CONSTANT
    if any(len(one) != len(whole) for one in handed):
        return "updates other variables when its batch is split"
    sums = [tf.add_n(list(column)) for column in zip(*handed, strict=True)]
    means = [one / len(slices) for one in sums]
    if _alike(means, whole):
        return ""
    if _alike(sums, whole):
        return f"has a loss that is a sum over its batch, {_GROWS}"
    if _partly_summed(step, slices, means, whole):
        return f"has a loss of which a part is a sum over its batch, {_GROWS}"
    return _COUPLED


def _partly_summed(step: _Step, slices: Sequence[Part], means: Gradients, whole: Gradients) -> bool:
    """Whether the gradients are those of a mean and of a sum.

    Then the mean over n slices lacks 1 - 1/n of the sum, for every n: one n foretells another.
    """
    parts, examples = len(slices), slices[0].of
    others = [n for n in range(2, examples + 1) if examples % n == 0 and n != parts]
    if not others:
        return False
    lacking = (1 - 1 / others[0]) / (1 - 1 / parts)
    foretold = [one - lacking * (one - mean) for one, mean in zip(whole, means, strict=True)]
    try:
        handed = step.of_replicas(slices_of(examples, others[0]))
        columns = [*zip(*handed, strict=True)]
    except Exception:  # of the user's step, which no replica may ever give so few examples
        return False
    return _alike([tf.add_n(list(column)) / others[0] for column in columns], foretold)


def _alike(some: Gradients, others: Gradients) -> bool:
    if len(some) != len(others):
        return False
    # By the largest: a gradient that should be zero is nothing but rounding.
    largest = max(others, key=_magnitude, default=None)
    return all(close(one, other, largest) for one, other in zip(some, others, strict=True))


def _magnitude(gradient: Any) -> float:
    return float(tf.reduce_max(tf.abs(gradient))) if gradient.shape.num_elements() else 0.0


def _drew(layer: Any) -> bool:
    return bool(getattr(generator_of(layer), "drew", False))
