"""The rows of tables that a batch looks up: how their gradients come together.

The gradient of a lookup is a list of rows and their numbers in the table. Keras 3 squares the rows
of a list one by one, also where several have the same number. So lists must come together as in
plain Keras on the whole batch. What is looked up for each example, such as words, makes a list as
long as the batch: those of replicas follow each other. What is looked up once for all examples,
such as positions, makes the same list for every batch: its rows are added.

The step itself tells which a list is. It is traced for batches of two sizes, and never run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.base import Backend
from ringside_core.keras import VERSION, is_of_keras, optimizers_of, raw, same_chance, tf
from ringside_core.specs import InputShard, RefusalError, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from trainers.rehearsal import first_examples
from trainers.whole_batch import takes_true_examples

Step = Callable[[Any, Any, Any, Any, Any], None]
"""Given (x, y, weight, scale, ids) of one pass."""


@dataclass(frozen=True)
class _Rows:
    """One list of rows in a gradient.

    Attributes:
        once: rows that are looked up once for all examples.
        each: rows of each example.
    """

    once: int
    each: int


@dataclass
class _Seen:
    """What one tracing shows of each variable; several replicas show the same.

    Attributes:
        lengths: of the lists in its gradient, None where a length is not known.
        of_data: which of the lists hold numbers that are computed from the batch.
        names: of the variables.
    """

    lengths: dict[int, set[tuple[int | None, ...]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    of_data: dict[int, tuple[bool, ...]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


class Lookups:
    """Brings lists of rows together. Legacy Keras adds the rows of a number up itself."""

    def __init__(self, model: Any, spec: RunSpec, virtual_replicas: int = 1) -> None:
        """Know nothing yet.

        Args:
            model: compiled.
            spec: of the run.
            virtual_replicas: see `trainers.train_step.instrument`.
        """
        replicas = spec.topology.num_replicas
        reduces = spec.capabilities.synchronous and spec.ablation != "unused"
        together = replicas if reduces else 1
        self._reduces = together > 1
        self._parts = together * virtual_replicas * spec.gradient_accumulation_steps
        plan = spec.batch_plan.replace(num_replicas=replicas * virtual_replicas)
        self._size = plan.per_pass_batch
        self._matter = VERSION == 3 and not spec.as_shipped and self._parts > 1
        self._model = model
        self._seen: _Seen | None = None
        self._rows: dict[int, tuple[_Rows, ...]] = {}

    def find(self, step: Step, backend: Backend, train: Pipeline) -> None:
        """See what the step looks up, and let the optimizers bring it together over replicas.

        Args:
            step: of a replica, on one pass.
            backend: started.
            train: of the training split.

        Raises:
            RefusalError: it cannot be told how a list of rows comes together.
        """
        if not self._matter or not _may_look_up(self._model):
            return
        specs, varying = _specs(train)
        small, large = self._size, self._size * self._parts
        for optimizer in optimizers_of(self._model) if self._reduces else ():
            backend.change_reduction(optimizer, self.reduced)
        with backend.scope(), same_chance():
            seen = [self._traced(step, _of_size(specs, size)) for size in (small, large)]
        for key, name in seen[0].names.items():
            found = _rows_of(key, *seen, small=small, large=large)
            if found is None or (varying and len({bool(one.once) for one in found}) > 1):
                raise _unknown(name)
            self._rows[key] = found

    def _traced(self, step: Step, specs: Any) -> _Seen:
        @tf.function
        def on_replicas(batch: Any) -> None:
            tf.distribute.get_strategy().run(step, args=batch)

        self._seen = seen = _Seen()
        try:
            on_replicas.get_concrete_function(specs)
        finally:
            self._seen = None
        return seen

    def note(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """While a step is traced by `find`: see the lists of one replica's gradients."""
        if self._seen is None:
            return
        for gradient, variable in zip(gradients, variables, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                key, lists = id(raw(variable)), _lists(gradient.indices)
                self._seen.lengths[key].add(tuple(one.shape[0] for one in lists))
                self._seen.names[key] = variable.name
                self._seen.of_data[key] = tuple(map(_is_of_data, lists))

    def reduced(
        self, reduce: Callable[[Any, Any], Any], gradients: list[Any], variables: list[Any]
    ) -> list[Any]:
        """A `GradientReduction`: rows that are looked up once are reduced like a dense gradient."""
        if self._seen is not None:
            self.note(gradients, variables)
            return list(reduce(gradients, variables))
        cut = [self._cut(*pair) for pair in zip(gradients, variables, strict=True)]
        sent = [one.values if once else one for pieces in cut for one, once in pieces]
        of = [v for pieces, v in zip(cut, variables, strict=True) for _ in pieces]
        done = iter(reduce(sent, of))
        return [_joined(_with_rows(done, pieces)) for pieces in cut]

    def added(self, gradients: Sequence[Any], variable: Any) -> Any:
        """The sum of what several parts of a batch have as the gradient of one variable."""
        there = [one for one in gradients if one is not None]
        if not there or not isinstance(there[0], tf.IndexedSlices):
            return tf.add_n(there) if there else None
        columns = zip(*(self._cut(one, variable) for one in there), strict=True)
        return _joined([_sum([one for one, _ in column], column[0][1]) for column in columns])

    def _cut(self, gradient: Any, variable: Any) -> list[tuple[Any, bool]]:
        """The lists of a gradient, and whether each is looked up once."""
        if not self._matter or not isinstance(gradient, tf.IndexedSlices):
            return [(gradient, False)]
        lists = self._rows.get(id(raw(variable)))
        if lists is None:
            raise _unknown(variable.name)
        once, each = (sum(getattr(one, name) for one in lists) for name in ("once", "each"))
        if not once or not each:
            return [(gradient, bool(once))]
        length = gradient.indices.shape[0]
        examples = ((tf.shape(gradient.indices)[0] if length is None else length) - once) // each
        sizes = tf.stack([one.once + one.each * examples for one in lists])
        numbers, rows = (tf.split(one, sizes) for one in (gradient.indices, gradient.values))
        return [
            (tf.IndexedSlices(values, indices, gradient.dense_shape), not one.each)
            for values, indices, one in zip(rows, numbers, lists, strict=True)
        ]


def _may_look_up(model: Any) -> bool:
    """Whether a gradient may be a list of rows: of Keras' own layers only an embedding's is."""
    return takes_true_examples(model) or any(
        isinstance(layer, tf.keras.layers.Embedding) or not is_of_keras(type(layer))
        for layer in model._flatten_layers()
    )


def _specs(train: Pipeline) -> tuple[Any, bool]:
    """What a batch (x, y, weight, scale, ids) looks like, and whether batches differ in more.

    Sentences, for example, may be as long as the longest of their batch.
    """
    specs = train.dataset(InputShard(index=0, count=1)).element_spec
    if all(None not in one.shape[1:] for one in tf.nest.flatten(specs)):
        return specs, False
    given = tf.nest.map_structure(tf.type_spec_from_value, first_examples(train, 1))
    return (*given, *specs[3:]), True


def _of_size(specs: Any, size: int) -> Any:
    return tf.nest.map_structure(
        lambda one: tf.TensorSpec([size, *one.shape[1:]] if one.shape.rank else [], one.dtype),
        specs,
    )


def _rows_of(
    key: int, one: _Seen, other: _Seen, *, small: int, large: int
) -> tuple[_Rows, ...] | None:
    """The lists of a variable's gradient; None: the two sizes do not tell.

    Args:
        key: of the variable.
        one: seen of a small batch.
        other: seen of a large one.
        small: examples of the small batch.
        large: of the large one.
    """
    if len(one.lengths[key]) != 1 or len(other.lengths[key]) != 1:
        return None
    (first,), (second,) = one.lengths[key], other.lengths[key]
    if len(first) != len(second):
        return None
    found = []
    for before, after, of_data in zip(first, second, one.of_data[key], strict=True):
        if before is None or after is None:
            return None
        if before == after and not of_data:
            found.append(_Rows(once=before, each=0))
        elif before % small == 0 and after * small == before * large:
            found.append(_Rows(once=0, each=before // small))
        else:
            return None
    return tuple(found)


def _lists(numbers: Any) -> list[Any]:
    """The lists of which TensorFlow has made one, where a table is used several times."""
    made = numbers.op
    while made.type == "Identity":
        made = made.inputs[0].op
    if made.type != "ConcatV2":
        return [numbers]
    return [one for part in made.inputs[:-1] for one in _lists(part)]


# They tell the shape of what they are given, and nothing of what is in it.
_OF_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "OnesLike", "ZerosLike")


def _is_of_data(numbers: Any) -> bool:
    """Whether a tensor of a graph is computed from an argument of its function."""
    graph = numbers.graph
    given = {id(one.op) for one in graph.inputs} - {id(one.op) for one in graph.internal_captures}
    left, known = [numbers.op], set()
    while left:
        made = left.pop()
        if id(made) in given:
            return True
        if id(made) not in known and made.type not in _OF_SHAPES:
            known.add(id(made))
            left += [one.op for one in made.inputs]
    return False


def _with_rows(done: Iterator[Any], pieces: Sequence[tuple[Any, bool]]) -> list[Any]:
    return [
        tf.IndexedSlices(next(done), one.indices, one.dense_shape) if once else next(done)
        for one, once in pieces
    ]


def _sum(lists: Sequence[Any], once: bool) -> Any:
    if once:
        values = tf.add_n([one.values for one in lists])
        return tf.IndexedSlices(values, lists[0].indices, lists[0].dense_shape)
    return _joined(lists)


def _joined(lists: Sequence[Any]) -> Any:
    """Lists one after the other."""
    if len(lists) == 1:
        return lists[0]
    values, indices = (
        tf.concat([getattr(one, name) for one in lists], 0) for name in ("values", "indices")
    )
    return tf.IndexedSlices(values, indices, lists[0].dense_shape)


def _unknown(name: str) -> RefusalError:
    return RefusalError(
        "Of each row that a step looks up in a table, it must be clear whether it is looked up for "
        "one example or once for all: Keras 3 squares the gradients of rows one by one.",
        received=f"the lookups in {name}",
        advice="Look up as many rows for each example, by numbers of that example, or the same "
        "rows for every batch; or use one replica and no gradient accumulation.",
    )
