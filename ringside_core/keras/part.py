"""The part of a global batch that a replica's step runs on, and what TensorFlow does there.

Within a step (`Part.running`) losses are means over the replica's own rows, a gradient counts by
the replica's share of the rows, and the stack's own reducer adds the gradients of all replicas.
Outside of a step everything is TensorFlow's own. What Keras does differently in one stands in
`legacy_hooks.py` and `keras3_hooks.py`.

Changed here, for TensorFlow 2.21: `GradientTape.gradient`, `tf.gradients`, `pfor`,
`tf.nn.compute_average_loss`; a tf.function within a step is traced with it, because its own trace
would keep another step's share; an optimizer of TensorFlow 1 and an author's `all_reduce` of a
replica context are refused; and `Strategy.num_replicas_in_sync` is 1 within a step: TensorFlow and
both Keras divide losses by it, and multiply what they tell of sums.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.ops.parallel_for import control_flow_ops

from ringside_core.keras.tensorflow import VERSION, tf
from ringside_core.specs import RefusalError

# TensorFlow's classes of the graphs of branches and loops.
_BRANCHES = ("CondBranchFuncGraph", "WhileCondFuncGraph", "WhileBodyFuncGraph")
# What may reduce within a step.
_OUR_ROOMS = ("keras", "tf_keras", "tensorflow", "backends", "trainers", "ringside_core")
_here = threading.local()  # a strategy traces each replica in a thread of its own


@dataclass
class Part:
    """One replica's part of a step of one global batch.

    Attributes:
        number: of the replica, from 0.
        size: replicas in all.
        rows: of the global batch that are this replica's: number::size. 0: it runs on a row that is
            not its own, and counts nothing.
        n: rows of the global batch.
        reduce: (gradients, variables, the optimizer's own sum of pairs or None) → gradients: the
            stack's sum over replicas.
        total: tensors → their sums over replicas.
        at_tape: gradients are added where the outermost tape gives them; else where an optimizer
            applies them.
        alone: replicas change their own copies of variables, and do not wait for each other.
        merge: a metric's result is over all replicas already within the step.
        tiled: every row stands `size` times in the global batch, so each replica's rows are all n
            of the author's batch.
        held: rows that all replicas have in this pass; None: n.
        pending: gradients × shares of the passes before, by the key of the variable; None: the step
            is run in one pass.
        last: no pass follows, so an optimizer updates.
        results: of metrics that the step was given.
        whole: a metric is being given all replicas' rows.
    """

    number: int
    size: int
    rows: Any
    n: Any
    reduce: Callable[[list[Any], list[Any], Callable[[Any], Any] | None], list[Any]]
    total: Callable[[list[Any]], list[Any]]
    at_tape: bool = False
    merge: bool = False
    alone: bool = False
    tiled: bool = False
    held: Any = None
    pending: dict[int, Any] | None = None
    last: bool = True
    results: list[Any] = field(default_factory=list)
    updates: int = 0
    whole: bool = False
    graph: Any = None
    added: set[int] = field(default_factory=set)
    in_pfor: bool = False

    @functools.cached_property
    def share(self) -> Any:
        """How much it counts, a float64 scalar; all shares add up to 1."""
        return self.portion / self.size if self.tiled else self.portion

    @functools.cached_property
    def portion(self) -> Any:
        """Rows ÷ n, a float64 scalar: how much of a sum over the author's batch its rows have."""
        return tf.cast(self.rows, tf.float64) / tf.cast(self.n, tf.float64)

    @property
    def counts(self) -> Any:
        """Whether metrics count its rows, of those that stand several times the first ones."""
        return self.number == 0 if self.tiled else self.rows > 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within this block of a thread, a step runs on this part."""
        before = here()
        _here.part, self.graph = self, tf.compat.v1.get_default_graph()
        self.share, self.portion  # noqa: B018  # made here: a branch may be the first to ask
        try:
            yield
        finally:
            _here.part = before

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within this block replicas wait for each other.

        Raises:
            RefusalError: in a branch, or in a loop, which each may leave at another time.
        """
        graph = tf.compat.v1.get_default_graph()
        while graph is not None and graph is not self.graph:
            if type(graph).__name__ in _BRANCHES:
                raise RefusalError(
                    "What all replicas do together must not stand in a branch or a loop that each "
                    "of them decides by its own rows.",
                    received="a step that decides by its own rows whether to update, to gather or "
                    "to count",
                    advice='Add gradients="tape", where the condition is about gradients; else let '
                    "it be about ringside.gather(rows).",
                )
            graph = getattr(graph, "outer_graph", None)
        before, self.alone = self.alone, False
        try:
            yield
        finally:
            self.alone = before


def here() -> Part | None:
    """The part that the step of this thread runs on; None: no step runs."""
    return getattr(_here, "part", None)


def as_given(values: list[Any], *_: Any) -> list[Any]:
    """The sum over one replica, or what no reducer adds."""
    return values


def within(owner: Any, name: str, instead: Callable[..., Any]) -> None:
    """Let `instead(part, upstream, *args)` be called within a step, and upstream elsewhere."""
    upstream = getattr(owner, name)

    @functools.wraps(upstream)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        part = here()
        if part is None:
            return upstream(*args, **kwargs)
        return instead(part, upstream, *args, **kwargs)

    setattr(owner, name, hooked)


def times(value: Any, factor: Any) -> Any:
    """A tensor or slices × a scalar; 0 where that is 0, also of what is no number. None stays."""
    if value is None:
        return None
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(times(value.values, factor), value.indices, value.dense_shape)
    return tf.math.multiply_no_nan(value, tf.cast(factor, value.dtype))


def shared(
    part: Part,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    upstream: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """The gradients that are applied: each × the share, added over replicas.

    Those that a tape has added stay as they are.

    Args:
        part: of this replica.
        gradients: of this replica.
        variables: in the same order.
        upstream: the optimizer's own sum over replicas of (gradient, variable) pairs.
    """
    gradients = list(gradients)
    todo = [k for k, v in enumerate(variables) if not (part.at_tape and key(v) in part.added)]
    kept = part.pending or {}
    counted = [_sum(_counted(part, gradients[k]), kept.get(key(variables[k]))) for k in todo]
    if part.size > 1 and todo:
        counted = _reduced(part, counted, [variables[k] for k in todo], upstream)
    for k, gradient in zip(todo, counted, strict=True):
        gradients[k] = gradient
    return gradients


def postponed(part: Part, gradients: Sequence[Any], variables: Sequence[Any]) -> bool:
    """Whether an update waits for the passes that follow; then its gradients are kept.

    Args:
        part: of a pass.
        gradients: of this pass.
        variables: in the same order.

    Raises:
        RefusalError: the step updates more than once.
    """
    if part.last or part.pending is None:
        return False
    part.updates += 1
    if part.updates > 1:
        raise RefusalError(
            "A step that is run in several passes must update once.",
            received="a step that applies gradients more than once",
            advice="Train it without gradient accumulation.",
        )
    for gradient, variable in zip(gradients, variables, strict=True):
        kept = part.pending.get(key(variable))
        part.pending[key(variable)] = _sum(_counted(part, gradient), kept)
    return True


def _counted(part: Part, gradient: Any) -> Any:
    """A gradient × the share. Of slices that are equal in all replicas, one counts for all."""
    # Keras 3 squares slices of the same row one by one: those of halves would be another square.
    if part.tiled and isinstance(gradient, tf.IndexedSlices):
        return times(gradient, part.portion * (part.number == 0))
    return times(gradient, part.share)


def _reduced(
    part: Part, gradients: list[Any], variables: list[Any], upstream: Callable[[Any], Any] | None
) -> list[Any]:
    """Gradients, added over replicas."""
    # Keras 3 squares slices of the same row one by one. Slices of the same rows of a table in all
    # replicas, such as its positions, are added, as in the whole batch.
    slices = {k: g for k, g in enumerate(gradients) if _same_in_all(part, g)}
    given = [g.values if k in slices else g for k, g in enumerate(gradients)]
    with part.together():
        found = part.reduce(given, variables, upstream)
    for k, own in slices.items():
        found[k] = tf.IndexedSlices(found[k], own.indices, own.dense_shape)
    return found


def _same_in_all(part: Part, gradient: Any) -> bool:
    if VERSION == 2 or not isinstance(gradient, tf.IndexedSlices) or part.tiled or part.pending:
        return False
    if isinstance(part.n, int):  # a constant, from which indices may follow
        slices = gradient.indices.shape[0]
        rows = {max(1, part.n // part.size), -(-part.n // part.size)}
        if slices is None or any(slices % number == 0 for number in rows):
            return False
    return _is_constant(gradient.indices)


def _is_constant(tensor: Any) -> bool:
    """Whether a tensor of a graph follows from constants alone, not from rows or random numbers."""
    if tf.executing_eagerly():
        return False
    seen, left = set(), [tensor.op]
    while left:
        operation = left.pop()
        if operation.op_def.is_stateful or operation.type == "Placeholder":
            return False
        seen.add(operation.name)
        left += [each.op for each in operation.inputs if each.op.name not in seen]
    return True


def _sum(first: Any, second: Any) -> Any:
    """Of two gradients, tensors or slices; None where a variable has none."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, tf.IndexedSlices) and isinstance(second, tf.IndexedSlices):
        values, indices = (
            tf.concat([getattr(first, name), getattr(second, name)], 0)
            for name in ("values", "indices")
        )
        return tf.IndexedSlices(values, indices, first.dense_shape)
    return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)


def key(variable: Any) -> int:
    """What tells a variable from others, whichever replica's copy it is."""
    variable = getattr(variable, "value", variable) if not hasattr(variable, "handle") else variable
    whole = getattr(variable, "_distributed_container", None)
    return id(whole() or variable) if callable(whole) else id(variable)


def update(
    part: Part, upstream: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """Of `Mean`: a single number is a mean over rows, so it counts by the share."""
    if sample_weight is None and tf.convert_to_tensor(values).shape.rank == 0 and not part.whole:
        sample_weight = tf.cast(part.share, metric.dtype)
        values = times(floating(values), sample_weight > 0)
    return upstream(metric, values, sample_weight=sample_weight)


def update_sum(
    part: Part, upstream: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    """Of `Sum`."""
    if sample_weight is None and tf.convert_to_tensor(values).shape.rank == 0 and not part.whole:
        raise RefusalError(
            "One number that a step gives to a Sum may be a sum or a mean of its own rows, which "
            "add differently.",
            received=f"the metric {metric.name}",
            advice="Give it a number for each row.",
        )
    return upstream(metric, values, sample_weight=sample_weight)


def floating(value: Any) -> Any:
    """A number as a tensor of floating point."""
    value = tf.convert_to_tensor(value)
    return value if value.dtype.is_floating else tf.cast(value, tf.keras.backend.floatx())


def mean_over_own_rows(
    part: Part, upstream: Callable[..., Any], loss: Any, *args: Any, **kwargs: Any
) -> Any:
    """Of `Loss.__call__`: of a sum over the own rows, what the share leaves whole."""
    value = upstream(loss, *args, **kwargs)
    if loss.reduction != "sum":
        return value
    return tf.math.divide_no_nan(value, tf.cast(part.portion, value.dtype))


def divisor_of_all(part: Part, divisor: Any) -> Any:
    """What a loss divides by that is no number of rows, such as its valid steps: of all rows.

    It is × portion: a loss so divided, × share and added over replicas, is that of the whole batch.

    Raises:
        RefusalError: the step is run in several passes.
    """
    if part.pending is not None:
        raise RefusalError(
            "Gradient accumulation needs losses that are means over rows.",
            received="a mean over the steps that a mask leaves, or over weights",
            advice="Train it without gradient accumulation.",
        )
    with part.together():
        total = tf.stop_gradient(part.total([times(divisor, part.rows > 0)])[0])
    return total * tf.cast(part.portion / (part.size if part.tiled else 1), total.dtype)


def mask_of_all(part: Part, mask: Any, dtype: Any) -> Any:
    """A mask × what makes a mean over its entries one over those that masks of all rows leave."""
    mask = tf.cast(mask, dtype)
    size = tf.cast(tf.size(mask), dtype)
    return mask * tf.math.divide_no_nan(size, divisor_of_all(part, tf.reduce_sum(mask)))


def wide_in_float64(make: Any) -> Any:
    """The __init__ of a dtype policy by which in float64 every layer computes so."""

    @functools.wraps(make)
    def made(self: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        lower = ("float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
        wide = tf.keras.backend.floatx() == "float64" and name in lower
        make(self, "float64" if wide else name, *args, **kwargs)

    return made


def _is_variable(source: Any) -> bool:
    return isinstance(source, tf.Variable) or isinstance(
        getattr(source, "value", None), tf.Variable
    )


def _gradient(
    part: Part,
    upstream: Callable[..., Any],
    tape: Any,
    target: Any,
    sources: Any,
    output_gradients: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    flat = tf.nest.flatten(sources)
    if not any(map(_is_variable, flat)) or _is_inner(part, tape):
        return upstream(tape, target, sources, output_gradients, *args, **kwargs)
    if part.at_tape:
        return _added(part, upstream, tape, target, sources, output_gradients, *args, **kwargs)
    if output_gradients is None:
        output_gradients = _of_sums(part, target)
    return upstream(tape, target, sources, output_gradients, *args, **kwargs)


def _of_sums(part: Part, target: Any) -> Any:
    """Gradients of losses: of several it is that of their sum, which the share must leave whole."""
    if not any(_rank(t) for t in tf.nest.flatten(target)):
        return None
    whole = tf.math.reciprocal_no_nan(part.portion)
    return tf.nest.map_structure(
        lambda t: tf.ones_like(t) * (tf.cast(whole, t.dtype) if _rank(t) else 1), target
    )


def _gradient_of_graph(
    part: Part,
    upstream: Callable[..., Any],
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    here_taken = tf.compat.v1.get_default_graph() is part.graph and not part.in_pfor
    if grad_ys is None and here_taken and any(map(_is_variable, tf.nest.flatten(xs))):
        grad_ys = _of_sums(part, ys)
    return upstream(ys, xs, grad_ys, *args, **kwargs)


def _is_inner(part: Part, tape: Any) -> bool:
    """Whether another gradient is taken through this one: by an outer tape, a jacobian, a loop."""
    if part.in_pfor or tf.compat.v1.get_default_graph() is not part.graph:
        return True
    recording = tape._recording
    if recording:
        tape._pop_tape()
    try:
        return not pywrap_tfe.TFE_Py_TapeSetIsEmpty()
    finally:
        if recording:
            tape._push_tape()


def _rank(tensor: Any) -> Any:
    return getattr(tensor, "shape", tf.TensorShape([])).rank


def _added(
    part: Part,
    upstream: Callable[..., Any],
    tape: Any,
    target: Any,
    sources: Any,
    output_gradients: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """The gradient of the whole global batch, in all replicas."""
    some = tf.cast(part.rows > 0, tf.float64)
    of_sum = tf.math.divide_no_nan(part.share, part.portion)

    def weight(t: Any, given: Any = None) -> Any:
        factor = of_sum if given is None and _rank(t) else part.share
        return times(tf.ones_like(t) if given is None else given, factor)

    if output_gradients is None:
        given = tf.nest.map_structure(weight, target)
    else:
        given = tf.nest.map_structure(weight, target, output_gradients)
    with part.together():  # a gradient may go through gathered rows
        found = upstream(tape, target, sources, given, *args, **kwargs)
    flat, owners = tf.nest.flatten(found), tf.nest.flatten(sources)
    own = [k for k, source in enumerate(owners) if _is_variable(source)]
    gradients, variables = [times(flat[k], some) for k in own], [owners[k] for k in own]
    if part.size > 1:
        gradients = _reduced(part, gradients, variables, None)
    for k, gradient in zip(own, gradients, strict=True):
        flat[k] = gradient
        part.added.add(key(owners[k]))
    return tf.nest.pack_sequence_as(found, flat)


def _in_pfor(part: Part, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    before, part.in_pfor = part.in_pfor, True
    try:
        return upstream(*args, **kwargs)
    finally:
        part.in_pfor = before


def _average(
    part: Part,
    upstream: Callable[..., Any],
    per_example_loss: Any,
    sample_weight: Any = None,
    global_batch_size: Any = None,
) -> Any:
    """The mean over the own rows, of the batch that the author divides by."""
    losses = tf.convert_to_tensor(per_example_loss)
    mean = upstream(losses, sample_weight, tf.shape(losses)[0])
    if global_batch_size is None:
        return mean
    return mean * tf.cast(part.n, mean.dtype) / tf.cast(global_batch_size, mean.dtype)


def in_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """A tf.function as Python, as autograph makes it, to be traced with its caller."""
    python = getattr(function, "python_function", None)
    if python is None:
        return function
    plain = getattr(python, "__func__", python)
    converted = plain if tf.executing_eagerly() else tf.autograph.to_graph(plain)
    owner = getattr(python, "__self__", None) or getattr(function, "__self__", None)
    return converted if owner is None else functools.partial(converted, owner)


def _called(
    part: Part, upstream: Callable[..., Any], function: Any, *args: Any, **kwargs: Any
) -> Any:
    room = str(function.python_function.__module__).partition(".")[0]
    if room in ("keras", "tf_keras", "tensorflow", "horovod"):
        return upstream(function, *args, **kwargs)
    return in_python(function)(*args, **kwargs)


def _refuse_optimizer(
    part: Part, upstream: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any
) -> Any:
    raise RefusalError(
        "An optimizer must be one of Keras.",
        received=f"{type(optimizer).__name__} of tf.compat.v1.train",
        advice="Use the one of that name in tf.keras.optimizers.",
    )


def _refuse_all_reduce(part: Part, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    frame = sys._getframe(2)  # behind `hooked`
    while ".autograph." in frame.f_globals["__name__"] and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_globals["__name__"].partition(".")[0] in _OUR_ROOMS:
        return upstream(*args, **kwargs)
    raise RefusalError(
        "Ringside adds gradients over replicas; a step must not do it too.",
        received="all_reduce of a replica context in a training step",
        advice="Leave it out. Rows of all replicas: ringside.gather(rows). Gradients of all, to be "
        'changed before they are applied: gradients="tape".',
    )


def _change_tensorflow() -> None:
    within(Function, "__call__", _called)
    within(tf.compat.v1.train.Optimizer, "apply_gradients", _refuse_optimizer)
    within(tf.GradientTape, "gradient", _gradient)
    within(tf, "gradients", _gradient_of_graph)
    within(control_flow_ops, "pfor", _in_pfor)
    within(tf.nn, "compute_average_loss", _average)
    within(tf.distribute.ReplicaContext, "all_reduce", _refuse_all_reduce)
    replicas = tf.distribute.Strategy.num_replicas_in_sync
    tf.distribute.Strategy.num_replicas_in_sync = property(
        lambda self: replicas.fget(self) if here() is None else 1
    )


_change_tensorflow()
