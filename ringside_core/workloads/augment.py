"""What draws random numbers for examples, tied to (seed, epoch, example)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.by_row import by_row, row_keys
from ringside_core.workloads.functions import called, rewritten
from ringside_core.workloads.randomness import (
    PYTHON,
    SeededStream,
    drawing_from,
    operations,
    random_operations,
)


class Whole(Protocol):
    """What makes an element whole in an epoch: partners of a zip, or batches that draw."""

    @property
    def arrays(self) -> Any:
        """By which processes see that they have the same, a nest of arrays."""

    def __call__(self, seed: int, epoch: Any, number: Any, element: Any) -> Any:
        """See `Augment.element`."""


@dataclass(frozen=True)
class Augment:
    """What is done anew for each example in each epoch.

    Attributes:
        of_one: element → element.
        of_batch: batch → batch, the same for a whole batch of elements, whose draws have a row for
            each; None: it works on single elements only.
        partners: what makes elements whole before; None: they are. There is no `of_batch` then.
    """

    of_one: Callable[..., Any]
    of_batch: Callable[..., Any] | None = None
    partners: Whole | None = None

    def whole(self, seed: int, epoch: Any, number: Any, element: Any) -> Any:
        """An element with its partners of an epoch; see `element`."""
        if self.partners is None:
            return element
        return self.partners(seed, epoch, number, element)

    def element(self, seed: int, epoch: Any, number: Any, element: Any) -> Any:
        """An element as it is in an epoch.

        Args:
            seed: see `draw_seed`.
            epoch: from 0.
            number: of the example.
            element: of that example.
        """
        if self.of_batch is None:
            element = self.whole(seed, epoch, number, element)
            return tied(self.of_one, seed)(epoch, number, element)
        alone = tf.nest.map_structure(lambda one: tf.expand_dims(one, 0), element)
        made = self.batch(seed, epoch, tf.expand_dims(number, 0), alone)
        return tf.nest.map_structure(lambda one: one[0], made)

    def batch(self, seed: int, epoch: Any, numbers: Any, batch: Any) -> Any:
        """A batch of elements as they are in an epoch; only if there is an `of_batch`.

        Args:
            seed: see `draw_seed`.
            epoch: from 0; scalar or [batch].
            numbers: of the examples, [batch].
            batch: their elements, a nest of tensors [batch, …].
        """
        assert self.of_batch is not None
        with refusals_as_they_are():
            return by_row(self.of_batch, row_keys(seed, epoch, numbers), batch)


def tied(augment: Callable[..., Any], seed: int) -> Callable[[Any, Any, Any], Any]:
    """(epoch, example number, element) → element; what it draws is a function of these alone.

    Args:
        augment: element → element.
        seed: see `draw_seed`.
    """

    def drawn(epoch: Any, number: Any, element: Any) -> Any:
        key = tf.stack([tf.cast(seed, tf.int64), tf.cast(epoch, tf.int64)])
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(number, tf.int64))
        with drawing_from(SeededStream(key)), refusals_as_they_are():
            return called(rewritten(augment), element)

    return drawn


def check_tied(augment: Callable[..., Any], element_spec: Any) -> None:
    """Refuse a function whose random numbers are not all tied.

    Args:
        augment: element → element.
        element_spec: of the element.

    Raises:
        RefusalError: it draws in Python, in a tf.function, or by an operation that cannot be tied.
    """
    number = tf.TensorSpec([], tf.int64)
    drawn = tf.function(tied(augment, 0), autograph=False)  # the user's part has its own
    traced = drawn.get_concrete_function(number, number, element_spec)
    left = [*random_operations([traced]), *(o for o in operations([traced]) if o in PYTHON)]
    if left:
        raise RefusalError(
            "What draws random numbers for an example must do so by TensorFlow's functions, "
            "outside of tf.function and of Python code.",
            received=", ".join(left),
            advice="Leave @tf.function away, use tf.random, and put Python code that draws nothing "
            "in a map of its own before it.",
        )


def draw_seed(seed: int, *, training: bool) -> int:
    """Of what is drawn for the examples of a split: the splits draw other numbers.

    Args:
        seed: of the run.
        training: whether it is the training split.
    """
    return 2 * seed + (not training)


@contextmanager
def refusals_as_they_are() -> Iterator[None]:
    """Autograph makes a StagingError of each error in a user's function."""
    try:
        yield
    except Exception as error:
        inner: BaseException | None = error
        while inner is not None and not isinstance(inner, RefusalError):
            inner = inner.__context__
        raise (inner or error) from None
