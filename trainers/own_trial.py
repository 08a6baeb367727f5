"""One run of the author's own steps on a model that is thrown away: what they return and update.

What cannot be made exact under every backend is refused here, before anything is distributed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ringside_core.keras import (
    APPLY,
    build_losses,
    build_metrics,
    compiled_losses,
    compiled_metrics,
    has_own_step,
    has_own_test_step,
    loss_metrics,
    metrics_of,
    on_apply,
    optimizer_kinds,
    optimizers_of,
    own_of_step,
    python_of,
    tf,
    told_as,
    variables_of,
    weights_of,
)
from ringside_core.specs import RefusalError
from ringside_core.users_errors import in_one_line
from ringside_core.workloads.step import StepFunction
from ringside_core.workloads.unbuilt import build_by_step
from ringside_core.workloads.weights import labels
from ringside_core.workloads.without_horovod import without_reductions
from trainers.gather import calls, gathering
from trainers.rehearsal import about_sizes
from trainers.results import Results, by_name, counted_by
from trainers.sums import are_sums, noting_sums
from trainers.whole_batch import takes_true_examples


@dataclass(frozen=True)
class Returned:
    """What one of the author's steps returns.

    Attributes:
        names: of the numbers, in its order.
        of_metrics: of those that a metric of the model holds, the metric's name.
        gathers: whether it has gathered the rows of all replicas (trainers/gather.py).
        loss_by_step: whether the loss of a single step can be told; else only that of an epoch.
    """

    names: tuple[str, ...]
    of_metrics: Mapping[str, str]
    loss_by_step: bool
    gathers: bool = False

    @property
    def loss(self) -> str | None:
        """Which of the numbers is told as the loss; None: none is called so."""
        named = (name for name in self.names if name.endswith("loss"))
        return "loss" if "loss" in self.names else next(named, None)

    @property
    def raw(self) -> tuple[str, ...]:
        """Numbers that no metric of the model holds."""
        return tuple(name for name in self.names if name not in self.of_metrics)


@dataclass(frozen=True)
class Trial:
    """What one run of the author's steps showed, on a model that is thrown away.

    Attributes:
        trained: what its train_step returns; None: it is Keras' own, and is given padding too.
        tested: what its test_step returns; None: it is Keras' own.
        updated: for each optimizer of `optimizers_of` the numbers, in `weights_of(model)`, of the
            variables that it updated.
        sums: whether the losses of its train_step are sums, which grow with the batch.
    """

    trained: Returned | None
    tested: Returned | None
    updated: tuple[tuple[int, ...], ...]
    sums: bool = False


def step_name(model: Any) -> str:
    """How messages name the model's training step, or its losses, if the step is Keras'."""
    if isinstance(model, StepFunction):
        return str(model.name)
    if own := own_of_step(model):
        return f"{type(model).__name__}.{own[0]}"
    return f"the training of {model.name}"


def build_compiled(model: Any, first: Callable[[], tuple[Any, Any, Any]], data: Any = None) -> None:
    """Make the compiled losses and metrics now: the step that makes them could not be watched.

    Args:
        model: compiled.
        first: returns a batch (x, y, weight); it is not called if there is nothing to make.
        data: a batch as the author's own step gets it, which is traced if the model cannot be
            called; None: it is not.
    """
    losses, metrics = compiled_losses(model), compiled_metrics(model)
    losses, metrics = (None if one is None or one.built else one for one in (losses, metrics))
    if losses is None and metrics is None:
        return
    # A model with a step of its own may have no call, or one of something else.
    with suppress(Exception if has_own_step(model) else NotImplementedError):
        x, y, _ = first()
        with about_sizes(model.name):
            made, y = model(x, training=False), labels(y)
        if losses is not None:
            build_losses(losses, y, made)
        if metrics is not None:
            build_metrics(metrics, y, made)
        return
    if data is not None:
        build_by_step(model, "train_step", data)


def try_out(
    model: Any,
    batch: tuple[Any, Any, Any],
    data: Any,
    held_out: Any,
    *,
    several: bool = False,
    gathers: RefusalError | None = None,
) -> Trial:
    """Run the author's steps once, in Python.

    Args:
        model: built and compiled outside of any strategy; it is trained by this.
        batch: (x, y, weight) of the training split.
        data: the same as the author's train_step gets it.
        held_out: a batch as the author's test_step gets it.
        several: whether several replicas will make a step together.
        gathers: why rows of several replicas cannot be gathered; None: they can.

    Raises:
        RefusalError: a step returns what cannot be told, a metric cannot be weighted, or an
            optimizer or what it updates is not the model's.
    """
    build_compiled(model, lambda: batch, data)
    _check_names(model)
    results, tested, trained, sums = Results.of(model), None, None, False
    weights = weights_of(model)
    one = tf.ones([], tf.keras.backend.floatx()) if several else None
    if has_own_test_step(model):
        explained, counts = _on_its_part(model, "test_step", several), counted_by(one, one)
        with explained, counts, gathering(gathers), noting_sums() as seen:
            tested = _returned(model, python_of(model.test_step), held_out, results)
        check_made_before(model, weights, "test_step")
        if several and seen:
            raise RefusalError(
                "A test_step must tell means: a sum would be another one with each number of "
                "replicas.",
                received=f"{type(model).__name__}.test_step, with {seen[0]}",
                advice="Divide it by the number of examples, or use a loss that is a mean.",
            )
    optimizers = optimizers_of(model)
    numbers = {weight.ref(): number for number, weight in enumerate(weights)}
    updated: list[list[int]] = [[] for _ in optimizers]
    if takes_true_examples(model):
        handed: dict[int, list[Any]] = {}
        for number, (optimizer, mine) in enumerate(zip(optimizers, updated, strict=True)):
            note = partial(_note_number, model, numbers, mine)
            _watch_updates(optimizer, note, partial(_keep, handed, number))
        known, counts = _only_known(optimizers), counted_by(one, one)
        with known, counts, gathering(gathers), noting_sums() as seen:
            with _on_its_part(model, "train_step", several):
                trained = _returned(model, python_of(model.train_step), data, results)
            if seen or (several and batch[2].shape[0] == 1):
                sums = _sums(model, handed, data, strict=several and bool(seen))
        if sums and several:
            _check_sums(model, seen, trained, examples=int(batch[2].shape[0]))
        if not any(updated):
            raise RefusalError(
                "A training step must apply an optimizer each time: gradients are combined there.",
                received=f"{step_name(model)}, which applies none at its first call",
                advice="Do not add up gradients over several steps: write the step of one batch, "
                "and make the batch as much larger.",
            )
    return Trial(trained, tested, tuple(tuple(dict.fromkeys(mine)) for mine in updated), sums)


@contextmanager
def _on_its_part(model: Any, step: str, several: bool) -> Iterator[None]:
    """Say what a replica's part of a batch has to do with an error of the author's step."""
    rule = "A step must run on each replica's part of a batch."
    with about_sizes(f"{type(model).__name__}.{step}", rule) if several else nullcontext():
        yield


def _keep(handed: dict[int, list[Any]], number: int, gradients: list[Any]) -> None:
    given = [gradient for gradient in gradients if gradient is not None]
    handed.setdefault(number, []).extend(map(tf.convert_to_tensor, given))


def _sums(model: Any, handed: dict[int, list[Any]], data: Any, *, strict: bool) -> bool:
    """Whether the losses of its train_step are sums over its batch.

    Args:
        model: that was tried out.
        handed: what its optimizers got; a step may apply one in every second update only.
        data: a batch.
        strict: whether a step that cannot be run on a few examples is refused; else it is none.
    """
    of_optimizers = [v for one in optimizers_of(model) for v in variables_of(one)]
    state = [(v, tf.identity(v)) for v in (*weights_of(model), *of_optimizers)]

    def gradients(batch: Any, by: float) -> dict[int, list[Any]]:
        for variable, value in state:
            variable.assign(value)
        handed.clear()
        share = tf.constant(by, tf.keras.backend.floatx())
        with counted_by(share, None, sums=by != 1.0):
            python_of(model.train_step)(batch)
        return dict(handed)

    try:
        return are_sums(gradients, data)
    except RefusalError:
        raise
    except Exception as error:  # the step may need its whole batch
        if not strict:
            return False
        raise RefusalError(
            "Whether a loss is a sum or a mean must be seen with a few copies of an example.",
            received=f"{step_name(model)}, which ends with {in_one_line(error)}",
            advice="Write tf.reduce_mean(loss) in it.",
        ) from None


def _check_sums(model: Any, seen: list[str], trained: Returned, *, examples: int) -> None:
    """Refuse sums that cannot be divided among replicas.

    Raises:
        RefusalError: rows are gathered, or it cannot be told from a mean with an axis too many.
    """
    if not seen or not (trained.gathers or examples == 1):
        return
    raise RefusalError(
        "The loss of gathered rows must be one number."
        if trained.gathers
        else "For a loss that is a sum, a replica must have two examples.",
        received=f"{step_name(model)}, with {seen[0]}",
        advice="Write tf.reduce_mean(loss) in it.",
    )


def _note_number(model: Any, numbers: dict[Any, int], mine: list[int], variable: Any) -> None:
    if variable.ref() not in numbers:
        check_made_before(model, [ref.deref() for ref in numbers])
        raise RefusalError(
            "An optimizer may update weights of the model only.",
            received=f"{variable.name}, which the model does not hold",
            advice="Make the variable an attribute of the model.",
        )
    mine.append(numbers[variable.ref()])


def check_made_before(model: Any, weights: Sequence[Any], step: str = "") -> None:
    """Refuse weights that the first step makes, beside these: runs could not begin with the same.

    Args:
        model: after its step.
        weights: that it had before.
        step: of the model; empty: its training step.

    Raises:
        RefusalError: see above.
    """
    before = {id(one) for one in weights}
    for weight in weights_of(model):
        if id(weight) not in before:
            raise RefusalError(
                "A model must have all its weights before its first step.",
                received=f"{weight.name}, which "
                f"{f'{type(model).__name__}.{step}' if step else step_name(model)} makes",
                advice=_BUILD_ITS_MODELS
                if isinstance(model, StepFunction)
                else "Call its layers once in its constructor, or in its `call`.",
            )


_BUILD_ITS_MODELS = (
    "Call what it uses once on a batch, within ringside.scope() and above the step: model(x[:1])."
)


def _check_names(model: Any) -> None:
    of_losses = {id(metric) for metric in loss_metrics(model)}
    names = [told_as(metric) for metric in metrics_of(model) if id(metric) not in of_losses]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusalError(
            "Metrics must have names of their own.",
            received=f"several called {', '.join(twice)} in {type(model).__name__}",
            advice='Name each, such as tf.keras.metrics.Mean(name="kl_loss").',
        )


@contextmanager
def _only_known(optimizers: Sequence[Any]) -> Iterator[None]:
    """Refuse an optimizer that is applied within this block, and that the model does not hold.

    Raises:
        RefusalError: see above.
    """
    known = {id(one) for one in optimizers}
    known |= {id(getattr(one, "inner_optimizer", None)) for one in optimizers}
    before = [getattr(kind, APPLY) for kind in optimizer_kinds]

    def checked(apply: Callable[..., Any]) -> Callable[..., Any]:
        def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) not in known:
                raise RefusalError(
                    "An optimizer must be an attribute of the model, or be in a list or dict that "
                    "is one: its gradients are combined over replicas.",
                    received=f"{type(self).__name__}, which the model does not hold",
                    advice="Write self.optimizer_of_… = it in the model.",
                )
            return apply(self, *args, **kwargs)

        return applied

    try:
        for kind, apply in zip(optimizer_kinds, before, strict=True):
            setattr(kind, APPLY, checked(apply))
        yield
    finally:
        for kind, apply in zip(optimizer_kinds, before, strict=True):
            setattr(kind, APPLY, apply)


def _watch_updates(
    optimizer: Any, seen: Callable[[Any], None], keep: Callable[[list[Any]], None]
) -> None:
    def watched(apply: Callable[..., Any], gradients: list[Any], variables: list[Any]) -> Any:
        for variable in variables:
            seen(variable)
        keep(gradients)
        return apply(gradients)

    on_apply(optimizer, watched)


def _returned(model: Any, step: Callable[[Any], Any], data: Any, results: Results) -> Returned:
    before = calls()
    with without_reductions():
        told = by_name(step(data))
    kind = type(model).__name__
    of_losses = {id(metric) for metric in loss_metrics(model)}
    if isinstance(told, dict):
        # `build_compiled` makes a mean of Keras' own loss. Plain Keras has it if a step uses it.
        told = {
            name: value
            for name, value in told.items()
            if id(results.metric_of(value)) not in of_losses or results.of_batch(value) is not None
        }
    if not isinstance(told, dict) or not told:
        raise RefusalError(
            "A train_step or test_step must return its losses and metrics by name.",
            received=f"a {type(told).__name__} from {kind}",
            advice='Return a dict, such as {"loss": loss}.',
        )
    # Of Keras' own losses only the result itself is theirs: a bare loss may have their name.
    own = {told_as(one): one for one in metrics_of(model) if id(one) not in of_losses}
    of_metrics = {}
    for name, value in told.items():
        metric = results.metric_of(value) or own.get(name)
        if metric is None:
            continue
        if id(metric) not in {id(one) for one in metrics_of(model)}:
            raise RefusalError(
                "A metric whose result a step returns must be one of the model's `metrics`: they "
                "are reset at the beginning of an epoch.",
                received=f"{metric.name}, which {kind}.metrics does not hold",
                advice="Let the property `metrics` return it too.",
            )
        of_metrics[name] = told_as(metric)
    found = Returned(tuple(told), of_metrics, loss_by_step=False, gathers=calls() > before)
    if found.loss is None:
        return found
    by_step = found.loss in found.raw or results.of_batch(told[found.loss]) is not None
    return replace(found, loss_by_step=by_step)
