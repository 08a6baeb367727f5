"""Read what an arm is fed, at some places of all its data, beside the workload's own elements.

The own elements are looked up without the pipeline: arrays are indexed by NumPy, and a stream is
read in its plain order. ringside/verify/same_elements.py says where to look, and judges.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside.verify.same_elements import SPLITS, Looked, Place, Split, difference, draw_places
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RunSpec
from ringside_core.workloads.augment import Augment, draw_seed
from ringside_core.workloads.functions import as_tuple, called
from ringside_core.workloads.pipeline import Pipeline, make_pipeline
from ringside_core.workloads.registry import load_function
from ringside_core.workloads.source import ArraySource, Source
from ringside_core.workloads.weights import as_fed
from ringside_core.workloads.workload import Workload
from trainers.checkpoint import Position
from trainers.resume import reader
from trainers.totals import BegunEpoch

# Of a stream that is not cached, everything before a batch must be read to reach it.
MOST_STREAMED = 10_000
# What one process may hold of a split; at least one place is read.
MOST_BYTES = 2**28


def look(spec: RunSpec, workload: Workload, backend: Backend, seed: int) -> Looked:
    """Compare what this process is fed with the workload's own elements, without training.

    Args:
        spec: of the run that is timed; Keras must compute in its precision.
        workload: with all its data.
        backend: started. All processes must look.
        seed: of the places.
    """
    spec = spec.replace(ledger="digest")  # without tags
    places: list[Place] = []
    batches, examples, wrong = (0, 0), 0, ""
    for split in SPLITS:
        training = split == "training"
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=training)
        steps = pipeline.shares.global_batches
        reached = _reached(pipeline, steps)
        drawn = draw_places(split, epochs=spec.epochs if training else 1, steps=reached, seed=seed)
        at, passes, fed = _fed(spec, pipeline, backend, drawn)
        batches = (reached, steps) if training else batches
        places += dict.fromkeys(at)
        examples += len(at)
        if not wrong and at:
            wrong = _differs(workload, pipeline, split, at, passes, fed)
    return Looked(
        seed=seed,
        examples=examples,
        places=tuple(places),
        reached=batches[0],
        batches=batches[1],
        wrong=wrong,
    )


def _reached(pipeline: Pipeline, steps: int) -> int:
    """The global batches of an epoch among which places are drawn."""
    if isinstance(pipeline.prepared, ArraySource):
        return steps
    return max(1, min(steps, MOST_STREAMED // pipeline.plan.global_batch))


# What is fed


def _fed(
    spec: RunSpec, pipeline: Pipeline, backend: Backend, places: Sequence[Place]
) -> tuple[list[Place], NDArray[Any], Any]:
    """Place and pass of each example that this process is fed, and (x, y, weight, ids) of them all.

    A coordinator reads what it has its workers read.
    """
    readers = backend.num_readers
    replicas = pipeline.plan.num_replicas // readers
    pipeline = _in_tensors(pipeline)

    asked: list[int] = []  # shards that are read here

    at_once = np.array([(place.epoch, place.step) for place in places])

    def read(shard: InputShard) -> Any:
        asked.append(shard.index)
        # As a data set of places the pipeline is traced once, not once for each of them.
        each = tf.data.Dataset.from_tensor_slices(at_once)
        begun = _begun(spec, pipeline)
        return each.flat_map(lambda place: begun(shard, place[0], place[1]).take(replicas)).repeat()

    if backend.role == "coordinator":
        shards = [InputShard(index=index, count=readers) for index in range(readers)]
        # A worker whose slice begins after the last example is fed nothing.
        iterators = [iter(read(shard)) for shard in shards if pipeline.shares.reader_batches(shard)]
    else:
        iterators = [iter(backend.distribute(read))]
    at: list[Place] = []
    passes: list[NDArray[Any]] = []
    kept: list[list[NDArray[Any]]] = []
    structure: Any = None
    for place in places:
        for shard_index, iterator in zip(asked, iterators, strict=False):
            x, y, weight, _, ids = next(iterator)
            structure = x, y, weight, ids
            columns = [backend.local_values(one) for one in tf.nest.flatten(structure)]
            for replica, batch in enumerate(zip(*columns, strict=True)):
                true = batch[-1] >= 0
                passes.append(_passes(pipeline, place, shard_index * replicas + replica)[true])
                kept.append([column[true] for column in batch])
                at += [place] * int(true.sum())
        if sum(column.nbytes for batch in kept for column in batch) > MOST_BYTES:
            break
    whole = [np.concatenate(column) for column in zip(*kept, strict=True)]
    return at, np.concatenate(passes), tf.nest.pack_sequence_as(structure, whole)


def _passes(pipeline: Pipeline, place: Place, replica: int) -> NDArray[Any]:
    """The pass over the data to which each example of a replica's batch belongs."""
    batch = pipeline.plan.per_replica_batch
    if not pipeline.shares.goes_on:
        return np.full(batch, place.epoch)
    update = place.epoch * pipeline.shares.global_batches + place.step
    first = update * pipeline.plan.global_batch + replica * batch
    return (first + np.arange(batch)) // pipeline.num_examples


def _in_tensors(pipeline: Pipeline) -> Pipeline:
    """The same pipeline; its arrays are copied into tensors once, not once for each place."""
    source = pipeline.prepared
    if not isinstance(source, ArraySource):
        return pipeline
    with tf.device("CPU"):
        arrays = tf.nest.map_structure(tf.constant, source.arrays)
        tensors = dataclasses.replace(source, arrays=arrays)
    options = pipeline.options.replace(filter=None)  # it has been applied
    return dataclasses.replace(pipeline, source=tensors, options=options)


def _begun(spec: RunSpec, pipeline: Pipeline) -> Callable[[InputShard, Any, Any], Any]:
    """Input shard, epoch and step → batches from there on, as training or evaluation gets them."""

    def batches(shard: InputShard, epoch: Any, step: Any) -> Any:
        if not pipeline.training:
            return pipeline.dataset(shard, first_step=step)
        begun = BegunEpoch(batches=step, feed="", totals=(), fed=None)
        return reader(spec, pipeline, Position(epochs_done=epoch, begun=begun))(shard)

    return batches


# What should be fed


def _differs(
    workload: Workload,
    pipeline: Pipeline,
    split: Split,
    at: Sequence[Place],
    passes: NDArray[Any],
    fed: Any,
) -> str:
    """The first difference from the workload's own elements, in one sentence; empty: none."""
    *found, ids = fed
    if len(foreign := np.flatnonzero(ids >= pipeline.num_examples)):
        return f"id {ids[foreign[0]]} is no example's, yet fed in {at[foreign[0]]}"
    keep = pipeline.options.filter
    source = workload.train if split == "training" else workload.validation
    element = own_elements(
        source, ids, None if keep is None else load_function(keep, what="filter")
    )
    seed = draw_seed(pipeline.seed, training=pipeline.training)
    element = own_augmented(source.augment, seed, passes, ids, element)
    own = own_batch(workload.preprocess, element, of_arrays=source.of_arrays)
    class_weight = workload.class_weight if split == "training" else None
    own = *own[:2], own_weight(len(ids), own, class_weight)
    for what, here, there in zip(("x", "y", "weight"), found, own, strict=True):
        pairs = zip(tf.nest.flatten(here), tf.nest.flatten(there), strict=True)
        for one, other in pairs:
            told, row = difference(what, one, np.asarray(other), ids)
            if told:
                return f"{told}, in {at[row]}"
    return ""


def own_elements(source: Source, ids: NDArray[Any], keep: Callable[..., Any] | None = None) -> Any:
    """The elements of these ids [n], as a nest of arrays [n, …].

    Args:
        source: of one split.
        ids: numbers of examples, in the source's order.
        keep: the filter; it is applied before examples are counted.
    """
    if isinstance(source, ArraySource):
        if keep is None:
            return tf.nest.map_structure(lambda array: np.asarray(array)[ids], source.arrays)
        elements, decode = tf.data.Dataset.from_tensor_slices(source.arrays), None
    else:
        elements, decode = tf.data.Dataset.from_tensor_slices(list(source.parts)), source.decode
        elements = elements.flat_map(source.read)
    if keep is not None:
        if decode is not None:
            late, decode = decode, None
            elements = elements.enumerate().map(lambda _, raw: called(late, raw))
        elements = elements.filter(keep)
    wanted = np.zeros(int(ids.max()) + 1, np.bool_)
    wanted[ids] = True
    numbered = elements.enumerate().take(len(wanted))
    numbered = numbered.filter(lambda number, _: tf.gather(tf.constant(wanted), number))
    if decode is not None:  # only what is wanted
        numbered = numbered.map(lambda number, raw: (number, called(decode, raw)))
    numbers, element = next(numbered.batch(len(wanted)).as_numpy_iterator())
    rows = np.searchsorted(numbers, ids)
    return tf.nest.map_structure(lambda column: column[rows], element)


def own_augmented(
    augment: Augment | None,
    seed: int,
    epochs: NDArray[Any],
    ids: NDArray[Any],
    element: Any,
) -> Any:
    """The elements as they are in these epochs [n], as a nest of arrays [n, …].

    Args:
        augment: of the source; None: the elements are the same in all epochs.
        seed: of what is drawn (`draw_seed`).
        epochs: [n], from 0.
        ids: numbers of the examples, [n].
        element: a nest of arrays, [n, …].
    """
    if augment is None:
        return element
    each = tf.data.Dataset.from_tensor_slices((epochs.astype(np.int64), ids, as_tuple(element)))
    return next(each.map(partial(augment.element, seed)).batch(len(ids)).as_numpy_iterator())


def own_batch(
    preprocess: Callable[..., Any] | None, element: Any, *, of_arrays: bool
) -> tuple[Any, ...]:
    """(x, y) or (x, y, sample_weight) of a nest of arrays [n, …], as tensors.

    Without labels, y is an empty tuple. `of_arrays`: whether the author gave arrays.
    """
    batch = tf.data.Dataset.from_tensors(tuple(element) if isinstance(element, list) else element)
    made = next(iter(batch if preprocess is None else batch.map(preprocess)))
    made = as_fed(made, of_arrays=of_arrays)
    parts: tuple[Any, ...] = made if isinstance(made, tuple) else (made,)
    return (*parts, ()) if len(parts) == 1 else parts


def own_weight(
    count: int, batch: tuple[Any, ...], class_weight: Mapping[int, float] | None
) -> NDArray[Any]:
    """The weight of each example [n, …]: the user's sample weight × the weight of its class."""
    factors: list[NDArray[Any]] = [np.ones(count)]
    factors += [np.asarray(one) for one in batch[2:]]
    if class_weight is not None:
        y = np.asarray(batch[1])
        if y.ndim > 1:
            y = np.argmax(y, axis=-1) if y.shape[-1] > 1 else y[..., 0]
        by_class = np.array([class_weight[number] for number in range(len(class_weight))])
        factors.append(by_class[np.rint(y).astype(np.int64)])
    rank = max(factor.ndim for factor in factors)
    aligned = (f.reshape(f.shape + (1,) * (rank - f.ndim)) for f in factors)
    product: NDArray[Any] = reduce(np.multiply, aligned)
    return product.astype(tf.keras.backend.floatx())
