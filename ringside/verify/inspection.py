"""Find out by experiment, in one serial process, what of a model cannot be compared.

The model runs on a whole batch, then on the same batch again, then on the slices that replicas
would get, always from the same state. In the later runs every layer gets the inputs of the first
run, whatever the layers before it return. So a difference shows only in the layer where it begins.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringside.verify.example_random import (
    SEVERAL,
    described,
    drawing_layers,
    drawn_by,
    drew_several,
    tie_to_examples,
)
from ringside.verify.own_step_inspection import inspect_own_step
from ringside.verify.slices import (
    COARSE,
    TOLERANCES,
    Inspection,
    Part,
    close,
    masked_as,
    slices_of,
)
from ringside_core.keras import (
    added_losses,
    functions_in_python,
    generator_of,
    get_weights,
    has_own_step,
    set_generator,
    set_weights,
    tf,
)
from ringside_core.specs import ByDesign, RefusalError
from ringside_core.users_errors import in_one_line, names_a_type, of_users
from ringside_core.workloads.weights import labels
from ringside_core.workloads.workload import Workload
from trainers.whole_batch import losses_count_padding, mark_alike, mark_losses

# More runs on the same batch: a layer that seldom draws can give the same result by chance.
_REPEATS = 2
_NO_NUMBERS = (tf.string, tf.variant, tf.resource)
_NORM = {
    "differs": "the mean and the variance, which are those of each replica's slice of the batch",
    "treated": "checked against a serial run that takes them slice by slice",
}


def inspect_model(
    workload: Workload,
    *,
    batch: tuple[Any, Any],
    replicas: Sequence[int],
    one_pass: bool = True,
) -> Inspection:
    """Build the model and find what depends on chance or on how a batch is split.

    Args:
        workload: its model and loss are inspected; precision and seed must be set already.
        batch: (x, y) of one global batch, nests of arrays or tensors.
        replicas: numbers of replicas for which the batch is split.
        one_pass: see `trainers.whole_batch.mark_losses`.

    Raises:
        RefusalError: the batch cannot be divided by one of these numbers.
    """
    x, y = (tf.nest.map_structure(tf.convert_to_tensor, part) for part in batch)
    examples = int(tf.nest.flatten(x)[0].shape[0])
    splits = [slices_of(examples, number) for number in sorted(set(replicas)) if number > 1]
    try:
        with functions_in_python():  # a tf.function would hide the layers that it calls
            return _inspected(workload, (x, y), splits, examples, one_pass=one_pass)
    except RefusalError:
        raise
    # Some of Keras' own layers compute in float32 only, and so do many authors' functions.
    except Exception as error:
        if names_a_type(str(error)):
            where = f" in {tf.keras.backend.floatx()}: {in_one_line(error)}"
        else:
            advice = "if that is about a size, take it from the batch, as tf.shape(x)[0]"
            where = f": {of_users(error)}; {advice}"
        told = f"the model cannot be called{where}"
        return Inspection((), (told,), (), (), runs=False)


def _inspected(
    workload: Workload,
    batch: tuple[Any, Any],
    splits: list[list[Part]],
    examples: int,
    *,
    one_pass: bool,
) -> Inspection:
    x, y = batch
    model = mark_losses(workload.build_model(), workload, one_pass=one_pass)
    if has_own_step(model):
        return inspect_own_step(model, workload, batch, splits)
    model(x, training=True)
    lab = _Lab(model, x, examples)
    lab.repeat()
    for slices in splits:
        lab.split(slices)
    loss, coupled = _of_losses(model, workload, (x, y, lab.predictions), splits)
    draws = lab.tied or lab.drawing
    evaluated = _chance_in_evaluation(workload, x, examples) if draws else []
    by_parts = losses_count_padding(model)
    norms = [layer for layer in lab.of_split if _batch_norm(layer) == "replica"]
    return Inspection(
        by_design=(
            *(generator_of(one).by_design for one in lab.tied),
            *(drawn_by(described(one)) for one in lab.drawing),
            *(ByDesign(layer=described(one), split=True, **_NORM) for one in norms),
            *(() if norms else coupled),
        ),
        obstacles=(*lab.obstacles(by_parts=by_parts), *loss, *evaluated),
        random_layers=tuple(described(one) for one in (*lab.tied, *lab.of_chance)),
        split_layers=tuple(described(one) for one in lab.of_split),
        true_examples=by_parts,
    )


class _Lab:
    """A model whose layers are watched, call by call.

    Attributes:
        predictions: output of the first run.
        of_chance: layers whose random numbers cannot be tied to the example.
        of_split: layers whose output for an example depends on the split.
    """

    def __init__(self, model: Any, x: Any, examples: int, *, training: bool = True) -> None:
        self._model, self._x, self._training = model, x, training
        self._whole = Part(0, examples, examples)
        self._state = get_weights(model)
        self._loss_layers: dict[Any, None] = {}  # as the next two, a set in order
        self._failures: dict[Any, str] = {}
        self.of_chance: dict[Any, None] = {}
        self.of_split: dict[Any, None] = {}
        self._generators = {layer: generator_of(layer) for layer in drawing_layers(model)}
        self._drawn = tie_to_examples(model, lambda: self._ids, lambda: tf.constant(0, tf.int64))
        self._drawing: dict[Any, None] = {}
        self._noted_draws = 0
        self._layers = list(dict.fromkeys(model._flatten_layers()))
        for layer in self._layers:
            # Keras' `__call__` asks the layer itself for it: masks, casts and losses stay as usual.
            vars(layer)["call"] = self._watched(layer, layer.call)
        self._recording = True
        self.predictions = self._first_run()
        self._recording = False
        self._losses = self._added_losses()

    @property
    def tied(self) -> list[Any]:
        """Layers that drew random numbers for each example."""
        drew = [one for one in self._generators if getattr(generator_of(one), "drew", False)]
        return [one for one in drew if one not in self.of_chance]

    @property
    def drawing(self) -> list[Any]:
        """Layers that drew for each example by tf.random."""
        return [one for one in self._drawing if one not in self.of_chance]

    def repeat(self) -> None:
        """Run on the same batch again: differences come from chance."""
        for _ in range(_REPEATS):
            self.of_chance |= self._blamed_on(self._whole)

    def split(self, slices: list[Part]) -> None:
        """Run on slices of the batch: differences come from the split."""
        means = dict.fromkeys(self._losses, 0.0)
        for part in slices:
            self.of_split |= self._blamed_on(part)
            for layer, value in self._added_losses().items():
                means[layer] = means.get(layer, 0.0) + value * part.size / part.of
        if not self._failures:
            differ = [one for one in means if not _near(means[one], self._losses.get(one, 0.0))]
            self._loss_layers |= dict.fromkeys(differ)

    def obstacles(self, *, by_parts: bool) -> list[str]:
        """Findings that cannot be allowed for, one sentence each.

        Args:
            by_parts: whether losses are those of each replica's part, in the serial run too.
        """
        others = [layer for layer in self.of_split if _batch_norm(layer) != "replica"]
        several = [layer for layer in others if drew_several(layer)]
        others = [layer for layer in others if layer not in several]
        told = {
            SEVERAL: several,
            "draws random numbers that Ringside cannot tie to the example": self.of_chance,
            "gives an example another output when its batch is split": others,
            "adds a loss that is not the mean of those of a batch's slices": (
                {} if by_parts else self._loss_layers
            ),
        }
        found = [f"{_subjects(layers)} {what}" for what, layers in told.items() if layers]
        return [*found, *self._failures.values()]

    def _first_run(self) -> Any:
        while True:
            # Inputs and outputs of each call of each layer.
            self._calls: dict[Any, list[Any]] = {layer: [] for layer in self._layers}
            untied = len(self.of_chance)
            try:
                return self._run(self._whole)
            # Keras may have turned the refusal into another exception.
            except Exception:
                if len(self.of_chance) == untied:
                    raise

    def _blamed_on(self, part: Part) -> dict[Any, None]:
        """Run on a part; returns the layers where a difference from the first run begins."""
        try:
            self._run(part)
        # A user's layer may raise anything when it gets fewer examples than it was made for.
        except Exception:
            if self._failed is None:
                raise
            told = f"{_subject(self._failed)} cannot be called on {part.size} of {part.of} examples"
            self._failures.setdefault(self._failed, f"{told}: {self._reason}")
        mine = [one for one in self._blamed if _batch_norm(one) != "global"]
        return dict.fromkeys(one for one in mine if one not in self.of_chance)

    def _run(self, part: Part) -> Any:
        set_weights(self._model, self._state)
        self._part = part
        # In an evaluation nobody says which examples they are.
        self._ids = part.start + tf.range(part.size, dtype=tf.int64) if self._training else None
        self._done = dict.fromkeys(self._layers, 0)
        self._inside: list[Any] = []  # layers whose calls have begun
        self._blamed: list[Any] = []
        self._failed: Any = None
        # Tensors that differ but have no value per example: id → the tensor, so that it stays
        # alive, and the layer that made it.
        self._spoilt: dict[int, tuple[Any, Any]] = {}
        self._suspects: dict[Any, Any] = {}  # layer → the layer in it that made such a tensor
        outputs = self._model(part.cut(self._x), training=self._training)
        # No layer comes after an output, so nothing later would show the harm of such a tensor.
        self._blamed += self._makers(outputs)
        return outputs

    def _makers(self, nest: Any) -> list[Any]:
        """The layers that made such tensors in a nest."""
        keys = map(id, tf.nest.flatten(nest))
        return [self._spoilt[key][1] for key in keys if key in self._spoilt]

    def _added_losses(self) -> dict[Any, float]:
        """Sum of what each layer has added to the loss in this run, without weight decay."""
        found = {layer: own for layer in self._layers if (own := added_losses(layer))}
        return {layer: float(sum(map(tf.reduce_sum, own))) for layer, own in found.items()}

    def _watched(self, layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a layer: record the first run, compare later runs with it."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not tf.executing_eagerly():  # inside tf.vectorized_map there are no values
                return call(*args, **kwargs)
            if not self._recording:
                return self._compared(layer, call, (args, kwargs))
            outputs = self._called(layer, call, (args, kwargs))
            self._calls[layer].append([tf.nest.flatten((args, kwargs)), tf.nest.flatten(outputs)])
            return outputs

        return watched

    def _compared(self, layer: Any, call: Callable[..., Any], given: Any) -> Any:
        """Call a layer in a later run, with the inputs and the outputs of the first one."""
        outer = self._inside[-1] if self._inside else layer
        calls, number = self._calls[layer], self._done[layer]
        self._done[layer] += 1
        if number >= len(calls):
            self._blamed.append(outer)  # it calls its layers more often than in the first run
            return self._called(layer, call, given)
        makers = self._makers(given)
        given = self._held(given, calls[number][0], self._suspects.get(outer, outer))
        outputs = self._called(layer, call, given)
        culprit = makers[0] if makers else self._suspects.get(layer, layer)
        return self._held(outputs, calls[number][1], culprit, outer)

    def _called(self, layer: Any, call: Callable[..., Any], given: Any) -> Any:
        args, kwargs = given
        self._inside.append(layer)
        try:
            outputs = call(*args, **kwargs)
            # A layer within this one has said so before.
            if self._drawn.draws > self._noted_draws:
                self._noted_draws, self._drawing[layer] = self._drawn.draws, None
            return outputs
        except Exception as error:
            if self._failed is None:
                self._failed, self._reason = layer, in_one_line(error)
                if isinstance(error, RefusalError) and layer in self._generators:
                    set_generator(layer, self._generators[layer])
                    self.of_chance[layer] = None
            raise
        finally:
            self._inside.pop()

    def _held(self, nest: Any, recorded: list[Any], culprit: Any, outer: Any = None) -> Any:
        """Replace each tensor by that of the first run; blame the layer whose tensor differs."""
        flat = tf.nest.flatten(nest)
        if len(flat) != len(recorded):
            self._blamed.append(culprit)
            return nest
        held = []
        for value, before in zip(flat, recorded, strict=True):
            same, instead = _matched(value, before, self._part)
            if same is False:
                self._blamed.append(culprit)
            elif same is None:
                self._spoilt.setdefault(id(value), (value, culprit))
                if outer is not None and value.dtype.is_floating:  # no size, to reshape by
                    self._suspects.setdefault(outer, culprit)
            held.append(instead)
        return tf.nest.pack_sequence_as(nest, held)


def _matched(value: Any, before: Any, part: Part) -> tuple[bool | None, Any]:
    """(whether a tensor equals that of the first run for the same examples, the latter).

    None instead of a truth value: it differs, but is not a value per example. It may be a mean over
    the batch, or the batch's size. Later layers show whether that does harm.
    """
    tensors = isinstance(value, tf.Tensor) and isinstance(before, tf.Tensor)
    if not tensors or value.dtype in _NO_NUMBERS:
        return True, value
    small, large = value.shape.as_list(), before.shape.as_list()
    if len(small) != len(large):
        return None, value
    axes = [axis for axis, sizes in enumerate(zip(small, large, strict=True)) if len({*sizes}) > 1]
    if not axes:
        if close(value, before, before):
            return True, masked_as(value, tf.identity(before))
        return (None, value) if part.size < part.of else (False, masked_as(value, before))
    # Examples may stand on any axis, and have several rows each, as in TimeDistributed.
    rows, left = divmod(large[axes[0]], part.of)
    if len(axes) > 1 or left or small[axes[0]] != rows * part.size:
        return None, value
    places = part.start * rows + tf.range(small[axes[0]])
    instead = tf.gather(before, places, axis=axes[0])
    if close(value, instead, before):
        return True, masked_as(value, instead)
    if rows == 1 and value.dtype.is_floating:
        return False, masked_as(value, instead)
    return None, value


def _near(a: float, b: float) -> bool:
    """Whether two sums are equal up to rounding in the precision of Keras."""
    tolerance = TOLERANCES.get(tf.as_dtype(tf.keras.backend.floatx()), COARSE)
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def _chance_in_evaluation(workload: Workload, x: Any, examples: int) -> list[str]:
    """Layers that draw random numbers outside of training too."""
    lab = _Lab(workload.build_model(), x, examples, training=False)
    lab.repeat()
    told = "draws random numbers in evaluation too, so that each evaluation is another one"
    return [f"{_subjects(lab.of_chance)} {told}"] if lab.of_chance else []


def _of_losses(
    model: Any, workload: Workload, batch: tuple[Any, Any, Any], splits: list[list[Part]]
) -> tuple[Sequence[str], Sequence[ByDesign]]:
    """What of the losses cannot be allowed for, and what is by design."""
    if not losses_count_padding(model):
        return _loss_obstacles(model, workload, batch, splits), ()
    # They are computed on each replica's own examples, as in an author's own step.
    plain = workload.build_model()
    mark_alike(plain, model)
    found = inspect_own_step(plain, workload, batch[:2], splits)
    return found.obstacles, [one for one in found.by_design if one.split]


def _loss_obstacles(
    model: Any, workload: Workload, batch: tuple[Any, Any, Any], splits: list[list[Part]]
) -> list[str]:
    """Check that the loss of (x, y, outputs), and its gradient, is the mean over the slices.

    The outputs are those of the whole batch, so layers have no effect on the result.
    """
    model.compile(loss=workload.loss)

    def loss_and_gradients(part: Part) -> tuple[float, list[Any]]:
        x, y, outputs = part.cut(batch)
        watched = [one for one in tf.nest.flatten(outputs) if one.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            loss = model.compute_loss(x, labels(y), outputs, None)
        gradients = tape.gradient(loss, watched, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return float(loss) * part.size / part.of, [one * part.size / part.of for one in gradients]

    for slices in splits:
        whole_loss, whole = loss_and_gradients(Part(0, slices[0].of, slices[0].of))
        losses, gradients = zip(*map(loss_and_gradients, slices), strict=True)
        means = [tf.concat(pieces, axis=0) for pieces in zip(*gradients, strict=True)]
        alike = [close(mean, one, one) for mean, one in zip(means, whole, strict=True)]
        if not (_near(sum(losses), whole_loss) and all(alike)):
            names = ", ".join(map(_loss_name, tf.nest.flatten(workload.loss)))
            return [
                f"the loss {names} is not the mean over a batch's examples: it sums or couples them"
            ]
    return []


def _loss_name(loss: Any) -> str:
    return str(getattr(loss, "__name__", getattr(loss, "name", loss)))


def _batch_norm(layer: Any) -> str:
    """Whose statistics batch normalisation uses; empty: another layer, or a user's variant."""
    norm = tf.keras.layers.BatchNormalization
    if not isinstance(layer, norm) or type(layer).call is not norm.call:
        return ""
    return "global" if layer.synchronized else "replica"


def _subjects(layers: Iterable[Any]) -> str:
    """The first one, and how many there are beside it."""
    first, *others = layers
    more = f", like {len(others)} other{'s' if len(others) > 1 else ''}," if others else ""
    return _subject(first) + more


def _subject(layer: Any) -> str:
    return f"{'model' if isinstance(layer, tf.keras.Model) else 'layer'} {described(layer)}"
