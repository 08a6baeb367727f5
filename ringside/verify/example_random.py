"""Random layers tied to the example: its dropout mask is the same on whichever replica it is fed.

Keras' generators draw for a whole batch. Another number of replicas splits the batch in another
way, and every replica has a stream of its own. So no two arms drop the same units, and nothing
after the first such layer could be compared. Here a draw is a pure function of (example id, step,
layer, number of the draw within the layer, position of the element within the example). A single
number for the whole batch is one of (step, layer, number of the draw): the same in each part. Where
a layer gets several batches one after the other, as the discriminator of a GAN, the rows of an
example's further ones are further elements of the example.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ringside_core.keras import (
    generator_of,
    let_unseeded_be_answered,
    python_of,
    set_generator,
    tf,
)
from ringside_core.specs import ByDesign, RefusalError
from ringside_core.workloads.randomness import (
    Stream,
    by_tensorflow,
    drawing_from,
    in_loop,
    stream_here,
)
from ringside_core.workloads.splitmix import GAMMA, mixed, shifted, word

# Φ(-2) and Φ(2): TensorFlow cuts a truncated normal at two standard deviations.
_BELOW, _ABOVE = 0.022750131948179195, 0.9772498680518208


def tie_to_examples(
    model: Any, current_ids: Callable[[], Any], current_step: Callable[[], Any]
) -> "ExampleStream":
    """Give every random layer of a built model a generator whose draws belong to the example.

    Layers are numbered in the order in which Keras tracks them, so a new copy of the model gets the
    same numbers. A draw that cannot be tied to the example is refused when it is made.

    Args:
        model: built; all its sublayers exist.
        current_ids: returns the ids of the examples of the current call, [batch] int64; called in
            the thread and graph of the model's call. A new tensor begins a new pass: the draws of
            each layer are numbered from 0 again. None: of nobody's, and nothing is tied.
        current_step: returns the number of the update, a scalar of any integer type.

    Returns:
        What answers the draws of tf.random, which are made without a generator of Keras.
    """
    current_ids = partial(_ids_of_values, current_ids)
    for index, layer in enumerate(drawing_layers(model)):
        numbers = ExampleRandom(
            described(layer), index, current_ids, current_step, generator_of(layer)
        )
        numbers.flips = isinstance(layer, tf.keras.layers.RandomFlip)
        numbers.crops = isinstance(layer, tf.keras.layers.RandomCrop)
        set_generator(layer, numbers)
    own = ExampleRandom(described(model), _WITHOUT_GENERATOR, current_ids, current_step, None)
    stream = ExampleStream(own, current_ids)
    for name in ("call", "train_step", "test_step"):
        vars(model)[name] = _answered(python_of(getattr(model, name)), stream, current_ids)
    return stream


def _ids_of_values(current_ids: Callable[[], Any]) -> Any:
    """The ids, or None where Keras calls layers only to learn the shapes of their outputs.

    It does so in a graph of its own, within a call too: a Sequential without an input shape is
    connected anew when it sees another size of batch. Nothing is drawn there.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if "scratch_graph" in getattr(graph, "name", ""):
            return None
        graph = getattr(graph, "outer_graph", None)
    return current_ids()


def _answered(
    function: Callable[..., Any], stream: "ExampleStream", current_ids: Callable[[], Any]
) -> Callable[..., Any]:
    def answered(*args: Any, **kwargs: Any) -> Any:
        with drawing_from(None if current_ids() is None else stream):
            return function(*args, **kwargs)

    return answered


def drawing_layers(model: Any) -> list[Any]:
    """The layers of a model that hold a random generator of Keras, including RNN cells."""
    # A layer that two others share comes twice.
    found = {id(layer): layer for layer in model._flatten_layers()}
    return [layer for layer in found.values() if generator_of(layer) is not None]


SEVERAL = (
    "draws several rows of random numbers for each example, and not those of one batch after the "
    "other, so that Ringside cannot tie them"
)


def drew_several(layer: Any) -> bool:
    """Whether a tied layer has drawn several rows for an example."""
    return bool(getattr(generator_of(layer), "several", False))


def described(layer: Any) -> str:
    """Name and type of a layer, for a message."""
    return f"{layer.name} ({type(layer).__name__})"


def drawn_by(layer: str, *, for_batch: bool = False) -> ByDesign:
    """What a certificate says about a layer whose random numbers are tied to the example.

    Args:
        layer: its name and type.
        for_batch: whether it draws one number for a whole batch.
    """
    if for_batch:
        return ByDesign(
            layer=layer,
            differs="the random number for a whole batch: each replica draws one for its part",
            treated="drawn as a function of the step and the layer, the same in each part; another "
            "number of replicas is another training",
        )
    return ByDesign(
        layer=layer,
        differs="the random numbers, which every replica draws from a stream of its own",
        treated="drawn as a function of the example, the step and the layer, in every arm",
    )


class ExampleRandom:
    """Stands in for `tf.keras.backend.experimental.RandomGenerator` within one layer.

    Element e of an example is output e of splitmix64. Its seed is a hash of layer and draw, then of
    the step, then of the id. Where nobody says which examples they are, such as in a model that is
    saved, Keras' own generator draws.

    Attributes:
        drew: whether anything was drawn.
        several: whether several rows were drawn for an example, taken for batches one after the
            other.
        flips: whether the layer is Keras' RandomFlip. Without a seed it asks tf.random for a number
            for each example, and ExampleStream answers.
        crops: whether the layer is Keras' RandomCrop, which draws one place for the whole batch: in
            Keras 2 as two numbers in one row.

    Raises:
        RefusalError: at a draw that neither is one number nor has as many parts for each example.
    """

    def __init__(
        self,
        layer: str,
        layer_index: int,
        current_ids: Callable[[], Any],
        current_step: Callable[[], Any],
        keras: Any,
    ) -> None:
        self._layer, self._layer_index, self._keras = layer, layer_index, keras
        self._current_ids, self._current_step = current_ids, current_step
        self._pass = threading.local()  # a strategy traces each replica in a thread of its own
        self.drew = self._drew_one = self.several = self.flips = self.crops = False
        # Keras asks for it when it writes down what a layer was made of.
        self._rng_type = getattr(keras, "_rng_type", None)

    @property
    def by_design(self) -> ByDesign:
        """What a certificate says about the layer."""
        return drawn_by(self._layer, for_batch=self._drew_one)

    def dropout(self, inputs: Any, rate: Any, noise_shape: Any = None) -> Any:
        """Zero for a share `rate` of the elements, the others divided by 1 - rate."""
        if self._current_ids() is None:
            return self._keras.dropout(inputs, rate, noise_shape)
        shape = tf.shape(inputs) if noise_shape is None else noise_shape
        # Compare in float64, so that a mask is the same in every precision.
        rate = _wide(rate)
        keep = self._unit(shape) >= rate
        scale = tf.cast(1.0 / (1.0 - rate), inputs.dtype)
        return tf.where(keep, inputs * scale, tf.zeros([], inputs.dtype))

    def random_uniform(
        self, shape: Any, minval: Any = 0.0, maxval: Any = None, dtype: Any = None
    ) -> Any:
        """Uniform in [minval, maxval), maxval 1 if it is not given; whole numbers below 2**53."""
        if self._current_ids() is None:
            return self._keras.random_uniform(shape, minval, maxval, dtype)
        dtype = tf.as_dtype(dtype or tf.keras.backend.floatx())
        if dtype.is_integer:
            low = tf.cast(minval, dtype)
            width = _wide(tf.cast(maxval, dtype) - low)
            return low + tf.cast(tf.floor(self._unit(shape) * width), dtype)
        low = _wide(minval)
        width = _wide(1.0 if maxval is None else maxval) - low
        # float32 has 24 bits. More bits would be rounded, possibly up to maxval itself.
        digits = 53 if dtype == tf.float64 else 24
        return tf.cast(low + width * self._unit(shape, digits), dtype)

    def random_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None
    ) -> Any:
        """Normal, by the inverse of the cumulative distribution function."""
        if self._current_ids() is None:
            return self._keras.random_normal(shape, mean, stddev, dtype)
        return self._scaled(self._open_unit(shape), mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None
    ) -> Any:
        """Normal, cut at two standard deviations."""
        if self._current_ids() is None:
            return self._keras.truncated_normal(shape, mean, stddev, dtype)
        inside = _BELOW + (_ABOVE - _BELOW) * self._open_unit(shape)
        return self._scaled(inside, mean, stddev, dtype)

    def make_legacy_seed(self) -> Any:
        """None to flip images; else refused: one seed for a whole batch belongs to no example."""
        if self._current_ids() is None:
            return self._keras.make_legacy_seed()
        if self.flips:
            self.drew = True
            return None
        raise self._refusal("one seed for the whole batch")

    def make_seed_for_stateless_op(self) -> Any:
        """None to flip images; else refused: one seed for a whole batch belongs to no example."""
        if self._current_ids() is None:
            return self._keras.make_seed_for_stateless_op()
        if self.flips:
            return None
        raise self._refusal("one seed for the whole batch")

    def _maybe_init(self) -> None:
        """Keras calls this when it builds a layer; there is no state to create."""

    def _scaled(self, probability: Any, mean: Any, stddev: Any, dtype: Any) -> Any:
        normal = tf.math.ndtri(probability)
        drawn = _wide(mean) + _wide(stddev) * normal
        return tf.cast(drawn, tf.as_dtype(dtype or tf.keras.backend.floatx()))

    def _open_unit(self, shape: Any) -> Any:
        """Uniform in (0, 1), float64; the middle of each of 2**52 equal parts."""
        return self._unit(shape, 52) + 2.0**-53

    def _unit(self, shape: Any, digits: int = 53) -> Any:
        """Uniform in [0, 1), float64, from the first binary digits of the draw."""
        top = shifted(self._bits(shape), 64 - digits)
        return tf.cast(top, tf.float64) * 2.0**-digits

    def _bits(self, shape: Any) -> Any:
        """64 random bits for each element, uint64."""
        ids, draw = self._next_draw()
        shape = tf.cast(tf.convert_to_tensor(shape), tf.int32)
        of_batch = self._of_batch(shape)
        if not of_batch:
            self._check_shape(shape, ids)
        elif in_loop(ids):
            raise self._refusal("one number in each round of a loop over the examples")
        self.drew, self._drew_one = True, self._drew_one or of_batch
        stream = _mixed(tf.constant(self._layer_index << 32 | draw, tf.uint64))
        step = tf.bitcast(tf.cast(self._current_step(), tf.int64), tf.uint64)
        at_step = _mixed(stream + step)
        if of_batch:
            return tf.reshape(_mixed(at_step + _counters(tf.reduce_prod(shape))), shape)
        size, examples = tf.reduce_prod(shape[1:]), tf.shape(ids)[0]
        batches = shape[0] // tf.maximum(examples, 1)
        keys = _mixed(at_step + tf.bitcast(tf.cast(ids, tf.int64), tf.uint64))
        bits = _mixed(keys[:, tf.newaxis] + _counters(batches * size)[tf.newaxis, :])
        of_batches = tf.transpose(tf.reshape(bits, [examples, batches, size]), [1, 0, 2])
        return tf.reshape(of_batches, shape)

    def _next_draw(self) -> tuple[Any, int]:
        """Ids of the batch, and how many draws the layer has made for it."""
        ids, here = self._current_ids(), self._pass
        # Counted in Python: a function that is traced once has the same numbers at each call.
        here.draw = here.draw + 1 if getattr(here, "ids", None) is ids else 0
        here.ids = ids
        return ids, here.draw

    def _of_batch(self, shape: Any) -> bool:
        """Whether a draw of this shape is for the whole batch."""
        return self.crops or shape.shape.num_elements() == 0

    def fits(self, shape: Any) -> bool:
        """Whether a draw of this shape is one number, or may have one row for each example."""
        shape, ids = tf.convert_to_tensor(shape), self._current_ids()
        if self._of_batch(shape):
            return True
        rows, examples = tf.get_static_value(shape[0]), ids.shape[0]
        return rows is None or examples is None or rows == examples

    def _check_shape(self, shape: Any, ids: Any) -> None:
        """Refuse a draw that does not have as many rows for each example."""
        rows, examples = tf.get_static_value(shape[0]), ids.shape[0]
        if None in (rows, examples):
            rest = shape[0] % tf.maximum(tf.shape(ids)[0], 1)
            tf.debugging.assert_equal(rest, 0, f"{self._layer}: {_RULE}")
        elif rows != examples:
            if not 0 < examples <= rows or rows % examples:
                raise self._refusal(f"{rows} rows of random numbers for {examples} examples")
            self.several = True

    def _refusal(self, received: str) -> RefusalError:
        return RefusalError(
            _RULE,
            received=f"layer {self._layer} draws {received}",
            advice="Draw tf.shape(x)[0] rows, or leave the layer away.",
        )


class ExampleStream(Stream):
    """Ties what a model draws by tf.random, or by keras.random without a seed, beside its layers.

    Attributes:
        draws: how many were tied.
    """

    def __init__(self, numbers: ExampleRandom, current_ids: Callable[[], Any]) -> None:
        """Draw nothing yet.

        Args:
            numbers: makes them.
            current_ids: see `tie_to_examples`.
        """
        self._numbers, self._current_ids = numbers, current_ids
        self.draws = 0

    @property
    def by_design(self) -> tuple[ByDesign, ...]:
        """What a certificate says; nothing if nothing was drawn."""
        return (self._numbers.by_design,) if self._numbers.drew else ()

    def answer(self, operation: str, given: dict[str, Any]) -> Any:
        """See Stream; TensorFlow draws what does not have one part for each example."""
        draw = getattr(self, f"_{operation}", None)
        if draw is None or self.numbers(given["shape"]) is None:
            return by_tensorflow(operation, given)
        return draw(**given)

    def numbers(self, shape: Any) -> ExampleRandom | None:
        """What makes the numbers of a draw of this shape; None: they are no example's."""
        ids = self._current_ids()
        if ids is None or in_loop(ids) or not self._numbers.fits(shape):
            return None
        self.draws += 1
        return self._numbers

    def _random_uniform(self, *, shape: Any, dtype: Any) -> Any:
        return self._numbers.random_uniform(shape, dtype=dtype)

    def _random_uniform_int(self, *, shape: Any, minval: Any, maxval: Any) -> Any:
        dtype = tf.convert_to_tensor(minval).dtype
        return self._numbers.random_uniform(shape, minval, maxval, dtype)

    def _random_standard_normal(self, *, shape: Any, dtype: Any) -> Any:
        return self._numbers.random_normal(shape, dtype=dtype)

    def _truncated_normal(self, *, shape: Any, dtype: Any) -> Any:
        return self._numbers.truncated_normal(shape, dtype=dtype)


def _of_unseeded(shape: Any) -> ExampleRandom | None:
    """What answers draws by Keras 3 without a seed, such as keras.random.normal(shape)."""
    stream = stream_here()
    return stream.numbers(shape) if isinstance(stream, ExampleStream) else None


let_unseeded_be_answered(_of_unseeded)
_WITHOUT_GENERATOR = 2**31 - 1  # takes the place of a layer's number
_RULE = "To be tied, random numbers must be drawn for each example of a batch, or one for all."


def _counters(elements: Any) -> Any:
    """Of each of so many elements, uint64."""
    return tf.bitcast(tf.range(tf.cast(elements, tf.int64)), tf.uint64) * word(GAMMA)


def _wide(number: Any) -> Any:
    """As float64; `tf.cast` would convert a Python number to float32 first."""
    return tf.cast(number if tf.is_tensor(number) else np.float64(number), tf.float64)


def _mixed(value: Any) -> Any:
    """splitmix64 of each element, uint64."""
    return mixed(value + word(GAMMA))
