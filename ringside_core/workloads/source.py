"""Where elements come from, in one fixed order: arrays in memory, or a stream.

An element is what the workload's `preprocess` takes, in most cases (x, y).
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.text import plural
from ringside_core.workloads.augment import Augment
from ringside_core.workloads.batches import read_batches
from ringside_core.workloads.dataset import take_apart
from ringside_core.workloads.functions import as_tuple, called, joined, rewritten
from ringside_core.workloads.pairs import stack_elements

TELL_AFTER_S = 10.0


@dataclass(frozen=True)
class ArraySource:
    """Elements held in memory: a nest of arrays that share their first dimension.

    Attributes:
        arrays: nest of arrays, each [num_examples, …].
        augment: what draws random numbers, anew for each example in each epoch; None: nothing does.
        shuffled: whether each epoch of a training has an order of its own, unless the run says.
        said: what is done otherwise than the data's author wrote it, one sentence each.
        of_arrays: whether the author gave arrays, not a data set that was read into memory.
        steps_per_epoch: updates in an epoch of a training, which goes on where the last one ended:
            its batches go on over the ends of the passes. None: an epoch is one pass.
        drops_rest: whether the author drops a short last batch (`in_whole_batches`).
        together: so many examples after one another stay together in each order, but for a rest at
            the end, which stays there.
    """

    arrays: Any
    augment: Augment | None = None
    shuffled: bool = True
    said: tuple[str, ...] = ()
    of_arrays: bool = True
    steps_per_epoch: int | None = None
    drops_rest: bool = False
    together: int = 1

    @cached_property
    def num_examples(self) -> int:
        """Length of the first dimension, the same for all arrays."""
        lengths = {len(array) for array in tf.nest.flatten(self.arrays)}
        if len(lengths) != 1:
            raise RefusalError(
                "All arrays of a data set must have the same length.", received=sorted(lengths)
            )
        return int(lengths.pop())

    def first(self, count: int) -> "ArraySource":
        """The first `count` elements."""
        _check_count(count, self.num_examples)
        arrays = tf.nest.map_structure(lambda array: array[:count], self.arrays)
        return replace(self, arrays=arrays, together=min(self.together, count))


@dataclass(frozen=True)
class StreamSource:
    """Elements read one after another from parts (files), in the order of the parts.

    Attributes:
        parts: one string for each part; a file name where the parts are files.
        read: part (scalar string tensor) → tf.data.Dataset of raw elements.
        decode: raw element → element, applied only to the elements that a reader keeps.
        lengths: raw elements in each part.
        augment, shuffled, said, steps_per_epoch, drops_rest: see ArraySource; augment takes what
            `decode` returns.
        batch_size: of the batches of a tf.data.Dataset; None: it has none.
        endless: whether its author repeats it without end.
    """

    parts: tuple[str, ...]
    read: Callable[[Any], Any]
    lengths: tuple[int, ...]
    decode: Callable[..., Any] | None = None
    augment: Augment | None = None
    shuffled: bool = True
    said: tuple[str, ...] = ()
    batch_size: int | None = None
    endless: bool = False
    steps_per_epoch: int | None = None
    drops_rest: bool = False
    of_arrays: ClassVar[bool] = False

    @property
    def num_examples(self) -> int:
        """Elements in all parts."""
        return sum(self.lengths)

    def first(self, count: int) -> "StreamSource":
        """`count` elements: the first ones of each part.

        Every part is kept and shortened in proportion (by largest remainder; of equal remainders
        the earlier part first). So as many readers as before can share the files.
        """
        total = self.num_examples
        _check_count(count, total)
        lengths = [length * count // total for length in self.lengths]
        by_remainder = sorted(
            range(len(lengths)), key=lambda part: -(self.lengths[part] * count % total)
        )
        for part in by_remainder[: count - sum(lengths)]:
            lengths[part] += 1

        def read(part: Any) -> Any:
            index = tf.argmax(tf.equal(tf.constant(self.parts), part))
            return self.read(part).take(tf.constant(lengths, tf.int64)[index])

        return replace(self, read=read, lengths=tuple(lengths))

    @cached_property
    def in_memory(self) -> ArraySource:
        """Everything, read and decoded once, in order."""
        dataset = tf.data.Dataset.from_tensor_slices(list(self.parts)).flat_map(self.read)
        if self.decode is not None:
            dataset = dataset.map(rewritten(self.decode), num_parallel_calls=tf.data.AUTOTUNE)
        arrays = stack_elements(dataset)
        return ArraySource(
            arrays,
            self.augment,
            self.shuffled,
            self.said,
            of_arrays=False,
            steps_per_epoch=self.steps_per_epoch,
            drops_rest=self.drops_rest,
        )


Source = ArraySource | StreamSource


def in_whole_batches(source: Source, batch: int, *, shuffled: bool) -> Source:
    """The same without a short last batch, if its author drops it.

    What is shuffled goes on in the next epoch, so that each example is still trained on.

    Args:
        source: of a split, already filtered.
        batch: global batch of the run, in examples.
        shuffled: whether each epoch has an order of its own.
    """
    if not source.drops_rest or source.steps_per_epoch is not None:
        return source
    examples, rest = source.num_examples, source.num_examples % batch
    source = replace(source, drops_rest=False)
    if rest == 0 or examples < batch:
        return source
    if shuffled:
        return going_on(source, examples // batch)
    note = f"its drop_remainder leaves out the last {plural(rest, 'example')} of {examples}"
    return replace(source.first(examples - rest), said=(*source.said, note))


def going_on(source: Source, updates: int) -> Source:
    """The same in epochs of so many updates."""
    said = (one.replace("in each epoch", "in each pass over the data") for one in source.said)
    note = (
        f"an epoch is {plural(updates, 'update')} and goes on where the last one ended; batches "
        "go on over the end of the data, so none is short"
    )
    return replace(source, steps_per_epoch=updates, said=(*said, note))


def _check_count(count: int, available: int) -> None:
    if not 1 <= count <= available:
        raise RefusalError(
            "A source can be cut to between 1 and all of its elements.",
            received=f"{count} of {available}",
        )


def first_elements(source: Source, count: int) -> Any:
    """A tf.data.Dataset of the first few elements of a source, before they are augmented."""
    if isinstance(source, ArraySource):
        return tf.data.Dataset.from_tensor_slices(source.first(count).arrays)
    elements = tf.data.Dataset.from_tensor_slices(list(source.parts)).flat_map(source.read)
    decode = source.decode
    if decode is None:
        return elements.take(count)
    return elements.take(count).map(lambda *raw: as_tuple(called(decode, joined(raw))))


def whole(elements: Any, augment: Augment) -> Any:
    """A tf.data.Dataset of elements with the partners that they have at first."""
    if augment.partners is None:
        return elements
    return elements.enumerate().map(lambda number, element: augment.whole(0, 0, number, element))


def first_batches(source: Source, preprocess: Callable[..., Any] | None, count: int) -> Any:
    """A tf.data.Dataset of one batch: the first few elements as they reach the model.

    Args:
        source: of one split; what it draws at random is nobody's here.
        preprocess: batch of elements → (x, y) or (x, y, sample_weight); None: they are that.
        count: of elements.
    """
    elements = first_elements(source, min(count, source.num_examples))
    if source.augment is not None:
        elements = whole(elements, source.augment).map(source.augment.of_one)
    batches = elements.batch(count)
    if preprocess is None:
        return batches
    return batches.map(lambda *batch: as_tuple(called(preprocess, joined(batch))))


def as_source(data: Any, *, what: str) -> Source:
    """Accept what people have: a source, a tf.data.Dataset, batches, or a nest of arrays.

    Args:
        data: the data of one split.
        what: its name, for messages.

    Raises:
        RefusalError: empty data, a data set without an end, or an object of another type.
    """
    source: Source
    if isinstance(data, ArraySource | StreamSource):
        source = data
    elif isinstance(data, tf.data.Dataset):
        source = _from_dataset(data, what=what)
    elif isinstance(data, tf.keras.utils.Sequence):
        source = _from_batches(data, what=what)
    elif isinstance(data, tuple | list | dict | np.ndarray) or tf.is_tensor(data):
        try:
            source = ArraySource(tf.nest.map_structure(np.asarray, as_tuple(data)))
            source.num_examples  # noqa: B018  # checks the lengths
        except (TypeError, ValueError) as error:
            raise RefusalError(f"The {what} must be arrays.", received=error) from None
    else:
        raise RefusalError(
            f"The {what} must be arrays, a tf.data.Dataset or a Ringside source.",
            received=type(data).__name__,
        )
    if source.num_examples == 0:
        raise RefusalError(f"The {what} must hold at least one example.", received="no example")
    return source


def check_dense(nest: Any, *, what: str) -> None:
    """Refuse ragged and sparse tensors: a batch is divided by examples, and is filled up.

    Args:
        nest: of tensors, or of what tf.data says of them.
        what: name of the data, for messages.

    Raises:
        RefusalError: see above.
    """
    kinds = (tf.RaggedTensor, tf.RaggedTensorSpec, tf.SparseTensor, tf.SparseTensorSpec)
    others = [one for one in tf.nest.flatten(nest) if isinstance(one, kinds)]
    if others:
        raise RefusalError(
            f"The {what} must be dense tensors.",
            received=", ".join(sorted({type(one).__name__ for one in others})),
            advice="Make them of one size and let the model mask the padding, as "
            "Embedding(mask_zero=True) does. x.to_tensor() pads a RaggedTensor, "
            "tf.sparse.to_dense(x) fills a SparseTensor; of a data set "
            "map(lambda x, y: (x, y)) turns its rows into tensors, and padded_batch(32) pads them.",
        )


def _from_dataset(dataset: Any, *, what: str) -> Source:
    check_dense(dataset.element_spec, what=what)
    parts = take_apart(dataset, seed=1 if what.startswith("validation") else 0)
    raw = parts.raw
    cardinality = int(raw.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise RefusalError(
            f"The {what} must end: an epoch is one pass over it.",
            received="a tf.data.Dataset without an end",
            advice="Bound it with .take(n).",
        )
    if cardinality < 0:  # unknown: the data set is read from files, or filtered
        cardinality = _counted(raw, what)
    # The data set is the only part, so it cannot be sharded by file.
    return StreamSource(
        parts=("dataset",),
        read=lambda _: raw,
        lengths=(cardinality,),
        decode=parts.decode,
        augment=parts.augment,
        shuffled=parts.shuffled,
        said=parts.said,
        batch_size=parts.batch_size,
        endless=parts.endless,
        drops_rest=parts.drops_rest,
    )


def _counted(elements: Any, what: str) -> int:
    """How many elements a data set has; who waits long for that is told, for it may have no end."""
    begun, wait_s, number = time.monotonic(), TELL_AFTER_S, 0
    for number, _ in enumerate(elements, 1):
        if time.monotonic() - begun > wait_s:
            print(
                f"still counting the {what}: {number:,} elements. If they never end, bound them "
                "with .take(n).",
                file=sys.stderr,
                flush=True,
            )
            wait_s *= 3
    return number


def _from_batches(batches: Any, *, what: str) -> ArraySource:
    read = read_batches(batches, what=what)
    order = (
        f"each epoch has an order of its own, of {'examples' if read.together == 1 else 'batches'}"
    )
    return ArraySource(read.arrays, read.augment, said=(read.note, order), together=read.together)


def writable_dir(path: Path) -> Path:
    """The directory; it is created if it does not exist.

    Raises:
        RefusalError: it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        trial = path / f".writable-{id(path)}"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise RefusalError(
            "The data directory must be writable.",
            received=str(error),
            advice="Choose another with --data-dir.",
        ) from None
    return path
