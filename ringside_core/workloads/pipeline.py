"""The one pipeline: how elements become batches, for every backend and every reader.

A batch is (x, y, weight, scale, id) of one replica: each [per_replica_batch, …], scale a scalar.
The order is a pure function of (seed, epoch, position): position → shuffled example number →
element. So global batch k holds the same examples under every synchronous backend and at every
number of replicas. Replica r takes its r-th slice. A restart at step k continues with the same
examples (docs/decisions/0002-one-way-for-data.md).

The last, short batch is kept. It is filled up with other examples, of weight 0 and id -1; real
examples have weight 1, or the user's weight. In training the loss is multiplied by weight × scale,
with scale = global_batch ÷ number of real examples. That makes the mean gradient exact in every
family without a special case. Metrics use the weight alone.

Where the data go on (`Shares.goes_on`), an epoch is a number of updates. Update u of the training
holds positions [uB, (u+1)B) of pass after pass, each in an order of its own; no batch is short.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import (
    BatchPlan,
    Capabilities,
    InputShard,
    PipelineOptions,
    RefusalError,
    RunSpec,
)
from ringside_core.workloads.augment import draw_seed
from ringside_core.workloads.batches import DrawnBatches
from ringside_core.workloads.functions import (
    as_tuple,
    called,
    joined,
    one_after_another,
    rewritten,
)
from ringside_core.workloads.pairs import stack_elements
from ringside_core.workloads.registry import load_function
from ringside_core.workloads.shares import Shares
from ringside_core.workloads.source import (
    ArraySource,
    Source,
    StreamSource,
    check_dense,
    first_batches,
    in_whole_batches,
)
from ringside_core.workloads.weights import as_fed, unpacked
from ringside_core.workloads.workload import Workload

PAD_ID = -1
_MANY = np.iinfo(np.int32).max  # epochs


@dataclass(frozen=True)
class Pipeline:
    """The batches of one split.

    Attributes:
        source: elements in their fixed order.
        preprocess: batch of elements → (x, y) or (x, y, sample_weight); None: they are that.
        options: how they are read.
        plan: how the global batch is divided.
        training: shuffled, endless, and weighted to an exact mean; else one pass with weights 0/1.
        synchronous: the slices of all readers make one update. If not, every slice is an update of
            its own: its weights are normalised within the slice, and empty slices are left out.
        seed: of the order.
        class_weight: see Workload; in training only.
        cores: of each replica.
    """

    source: Source
    preprocess: Callable[..., Any] | None
    options: PipelineOptions
    plan: BatchPlan
    training: bool
    synchronous: bool
    seed: int
    class_weight: Mapping[int, float] | None = None
    cores: int = 2

    @cached_property
    def prepared(self) -> Source:
        """The source as it is read: in memory if it is cached, without what the filter drops."""
        source = self.source
        if self.options.cache and isinstance(source, StreamSource):
            source = source.in_memory
        keep = self._filter
        if keep is not None:
            source = _filtered(source, keep)
        if isinstance(source, ArraySource) and self.options.shard != "batch":
            raise RefusalError(
                "The shard policies file, data and off work on a stream of elements.",
                received=f"shard={self.options.shard!r} on arrays",
                advice="Use --shard batch, or data that are read from files.",
            )
        if source.num_examples == 0:
            raise RefusalError(
                "The filter must leave at least one example.", received=self.options.filter
            )
        # An evaluation is of what its author's is, whose batches may be others.
        authors = None if self.training else getattr(self.source, "batch_size", None)
        size = authors or self.plan.global_batch
        source = in_whole_batches(source, size, shuffled=self.shuffles)
        going_on = self.training and source.steps_per_epoch is not None
        if going_on and self.options.shard != "batch":
            raise RefusalError(
                "An epoch of so many updates needs the same batches under every backend.",
                received=f"{source.steps_per_epoch} updates in an epoch, by steps_per_epoch or "
                f"drop_remainder, with --shard {self.options.shard}",
                advice="Use --shard batch, or leave out both.",
            )
        return source

    @cached_property
    def _filter(self) -> Callable[..., Any] | None:
        name = self.options.filter
        return None if name is None else load_function(name, what="filter")

    @property
    def num_examples(self) -> int:
        """Examples that remain after the filter."""
        return self.prepared.num_examples

    @cached_property
    def shares(self) -> Shares:
        """How many examples and batches each reader gets."""
        source = self.prepared
        return Shares(
            num_examples=source.num_examples,
            of_files=source.lengths if isinstance(source, StreamSource) else (),
            updates=source.steps_per_epoch if self.training else None,
            policy=self.options.shard,
            plan=self.plan,
            synchronous=self.synchronous,
        )

    @property
    def shuffles(self) -> bool:
        """Whether each epoch has an order of its own."""
        asked = self.options.shuffle
        return self.training and (self.source.shuffled if asked is None else asked)

    @cached_property
    def data_digest(self) -> str:
        """SHA-256 of the elements in order, as 64 hexadecimal digits; empty for a stream.

        An id only says which position was fed. The digest shows that the position held the same
        example in every process.
        """
        source = self.prepared
        if not isinstance(source, ArraySource):
            return ""
        sha = hashlib.sha256()
        partners = source.augment.partners if source.augment is not None else None
        drawn = [] if partners is None else tf.nest.flatten(partners.arrays)
        for array in [*tf.nest.flatten(source.arrays), *map(np.asarray, drawn)]:
            sha.update(f"{array.dtype.str} {array.shape} ".encode())
            sha.update(_content(array))
        return sha.hexdigest()

    def dataset(self, shard: InputShard, *, first_epoch: int = 0, first_step: int = 0) -> Any:
        """Batches for one reader, its replicas in turn, endless in training.

        Args:
            shard: which reader this is.
            first_epoch: epoch at which a resumed training goes on.
            first_step: of that epoch; in global batches, also of an asynchronous run.
        """
        if self.plan.num_replicas % shard.count:
            raise RefusalError(
                "Each reader must feed the same number of replicas.",
                received=f"{self.plan.num_replicas} replicas, {shard.count} readers",
            )
        replicas = self.plan.num_replicas // shard.count
        dataset = self._batches(shard, first_epoch, first_step)
        if self.options.prefetch:
            dataset = dataset.prefetch(self.options.prefetch * replicas)
        options = tf.data.Options()
        options.deterministic = True
        # Else the calls share the threads of TensorFlow's operations, which wait for the batches.
        options.threading.private_threadpool_size = self._calls(shard)
        # The sharding is decided above; TensorFlow must not shard again.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # The spec sets parallelism and prefetching, the same in every arm. The autotuner would
        # change nothing, but its thread takes CPU time, and the end waits seconds for it.
        options.autotune.enabled = False
        if self.training:
            # If the length is unknown, MultiWorkerMirroredStrategy asks all workers before each
            # step whether they have data left: one more all-reduce, which no other arm pays.
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            )
        return dataset.with_options(options)

    @cached_property
    def weighted(self) -> bool:
        """Whether the examples have weights of their own, from their sample or their class."""
        form = first_batches(self.source, self.preprocess, 1).element_spec
        given = isinstance(form, tuple) and len(form) == 3
        return given or (self.training and self.class_weight is not None)

    @property
    def of_arrays(self) -> bool:
        """Whether the author gave arrays, not a data set or a stream."""
        return self.source.of_arrays

    def _batches(self, shard: InputShard, first_epoch: Any, first_step: Any) -> Any:
        """(x, y, weight, scale, id) of each batch of one reader, from a place on."""
        source, calls = self.prepared, self._calls(shard)
        # The slot of a batch: its number within the reader's epoch.
        first = tf.cast(first_step * (self.plan.num_replicas // shard.count), tf.int64)
        if isinstance(source, ArraySource):
            return self._looked_up(source, first_epoch, first, shard)
        if self.shares.goes_on:
            read = self._streamed_on(
                source, first_epoch * self.shares.global_batches + first_step, shard
            )
        else:
            epochs = tf.data.Dataset.range(first_epoch, _MANY if self.training else 1)
            epochs = epochs.map(lambda epoch: (epoch, tf.where(epoch == first_epoch, first, 0)))
            read = epochs.flat_map(lambda *begin: self._streamed(source, *begin, shard))
        if self.preprocess is None:
            return read.map(self._finished)
        return read.map(self._finished, num_parallel_calls=calls, deterministic=True)

    def _calls(self, shard: InputShard) -> int:
        """Elements or batches that a reader prepares at once: so many for each of its replicas."""
        calls = self.options.parallel_map
        if calls is None:
            # On one core a second call computes nothing sooner, but a file may keep one waiting.
            streamed = isinstance(self.prepared, StreamSource)
            calls = max(2, self.cores) if streamed else self.cores
        return calls * (self.plan.num_replicas // shard.count)

    def _of_elements(self, shard: InputShard) -> int:
        """Calls for single elements under way at once.

        Unless the run says how many, each thread finds a second one ready: else it would wait for
        whoever hands out the elements.
        """
        calls = self._calls(shard)
        return calls if self.options.parallel_map else 2 * calls

    # From positions to batches

    # Ringside's own graph code has no Python control flow on tensors, so autograph need not rewrite
    # it. That saves half a second at every start. A user's functions are still rewritten.
    @tf.autograph.experimental.do_not_convert
    def _looked_up(
        self, source: ArraySource, first_epoch: Any, first: Any, shard: InputShard
    ) -> Any:
        """Batches from memory: positions are computed, elements gathered.

        A batch is made in one call: handing it from thread to thread took as long as making it.
        """
        replicas = self.plan.num_replicas // shard.count
        batch, total, calls = self.plan.per_replica_batch, self.num_examples, self._calls(shard)
        of_batch, of_one = self._drawn(source)
        # Of an epoch; an asynchronous reader may have none.
        slots = max(1, own := self.shares.reader_batches(shard) * replicas)
        # Captured by reference. Within a function they would be copied into its graph, which cannot
        # hold more than 2 GB.
        arrays = tf.nest.map_structure(tf.convert_to_tensor, source.arrays)

        def positions_of(slot: Any, places: Any) -> Any:
            step, replica = slot // replicas, shard.index * replicas + slot % replicas
            return step * self.plan.global_batch + replica * batch + places

        def gone_on(epoch: Any, positions: Any) -> tuple[Any, Any]:
            """Pass [batch] and position of places of an epoch that goes on; all are true."""
            positions += epoch * self.shares.global_batches * self.plan.global_batch
            return positions // total, positions % total

        def gathered(numbers: Any) -> Any:
            return tf.nest.map_structure(lambda array: tf.gather(array, numbers), arrays)

        @tf.autograph.experimental.do_not_convert
        def batch_at(slot: Any, element: Any = None) -> Any:
            epoch, slot = slot // slots, slot % slots
            positions = positions_of(slot, tf.range(batch, dtype=tf.int64))
            true = positions < total
            if self.shares.goes_on:
                true = tf.ones_like(true)
                epoch, positions = gone_on(epoch, positions)
            # Padding repeats from the beginning, because batch normalisation's statistics see it.
            numbers = self._order(positions % total, epoch, source)
            element = gathered(numbers) if element is None else element
            if of_batch is not None:
                element = of_batch(epoch, numbers, element)
            weights = self._weights(true, slot // replicas, shard.count)
            return self._finished(element, *weights, tf.where(true, numbers, PAD_ID))

        # For a whole batch at once, because `element_at` is called for each example.
        @tf.autograph.experimental.do_not_convert
        def numbers_at(slot: Any) -> Any:
            epoch, slot = slot // slots, slot % slots
            positions = positions_of(slot, tf.range(batch, dtype=tf.int64))
            if self.shares.goes_on:
                epoch, positions = gone_on(epoch, positions)
            return tf.broadcast_to(epoch, [batch]), self._order(positions % total, epoch, source)

        @tf.autograph.experimental.do_not_convert
        def element_at(epoch: Any, number: Any) -> Any:
            assert of_one is not None
            return of_one(epoch, number, gathered(number))

        begin = first_epoch * slots + first
        end = (_MANY if self.training else 1) * own
        if of_one is None:
            every = tf.data.Dataset.range(begin, end)
            return every.map(batch_at, num_parallel_calls=calls, deterministic=True)
        # What a user's function draws belongs to one example, so each is made alone.
        numbers = tf.data.Dataset.range(begin, end).map(numbers_at).unbatch()
        elements = numbers.map(
            element_at, num_parallel_calls=self._of_elements(shard), deterministic=True
        )
        batches = elements.batch(batch, drop_remainder=True).enumerate(begin)
        return batches.map(batch_at)

    def _drawn(self, source: Source) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
        """What draws anew in each epoch: for whole batches, or for single elements.

        At most one of the two is there: (epoch, example numbers, batch) → batch, or
        (epoch, example number, element) → element. A validation has epoch 0 only.
        """
        augment = source.augment
        if augment is None:
            return None, None
        seed = draw_seed(self.seed, training=self.training)
        draw = augment.element if augment.of_batch is None else augment.batch

        def drawn(epoch: Any, number: Any, element: Any) -> Any:
            return as_tuple(draw(seed, epoch, number, as_tuple(element)))

        return (None, drawn) if augment.of_batch is None else (drawn, None)

    def _order(self, positions: Any, epoch: Any, source: ArraySource) -> Any:
        """Example numbers at these positions: a permutation of all for each epoch.

        Args:
            positions: [batch], within the epoch.
            epoch: scalar; or [batch] ascending, as many as the positions allow.
            source: of the examples.
        """
        total, size = source.num_examples, source.together
        if self.shuffles and epoch.shape.rank:  # TensorFlow's takes one seed (seen on 2.21)
            most = (positions.shape[0] + total - 2) // total
            orders = [self._order(positions, epoch[0] + later, source) for later in range(most + 1)]
            return tf.gather(tf.stack(orders, axis=1), epoch - epoch[0], batch_dims=1)
        if not self.shuffles:
            return positions
        seed = tf.cast(tf.stack([tf.constant(self.seed, tf.int64), epoch]), tf.int32)
        shuffled, last = tf.random.experimental.index_shuffle, total // size - 1
        if size == 1:
            return shuffled(positions, seed=seed, max_index=last)
        group = shuffled(tf.minimum(positions // size, last), seed=seed, max_index=last)
        ordered = group * size + positions % size
        return tf.where(positions // size > last, positions, ordered)

    @tf.autograph.experimental.do_not_convert
    def _streamed(
        self, source: StreamSource, epoch: Any, first_slot: Any, shard: InputShard
    ) -> Any:
        """One epoch from a stream: read all in the fixed order, keep this reader's elements."""
        replicas = self.plan.num_replicas // shard.count
        batch, own = self.plan.per_replica_batch, self.shares.reader_examples(shard)
        skipped = first_slot * batch
        kept = self._kept_elements(source, epoch, shard).skip(skipped)  # before they are decoded
        elements = self._made(source, kept, epoch, shard)
        tf.nest.map_structure(_check_shape, elements.element_spec)
        missing = self.shares.reader_batches(shard) * replicas * batch - own
        if missing:
            # Taken from all elements, because a reader may have none of its own.
            everything = self._made(source, _numbered(source, source.parts), epoch, shard)
            # Below 0, and its example can still be told.
            padding = everything.map(lambda number, element: (PAD_ID - number, element))
            padding = padding.repeat().take(missing).skip(tf.maximum(skipped - own, 0))
            elements = elements.concatenate(padding)
        batches = elements.batch(batch, drop_remainder=True)
        of_batch, _ = self._drawn(source)

        def weighted(slot: Any, numbered: Any) -> Any:
            numbers, element = numbered
            true = numbers >= 0
            if of_batch is not None:
                element = of_batch(epoch, tf.where(true, numbers, PAD_ID - numbers), element)
            weights = self._weights(true, slot // replicas, shard.count)
            return element, *weights, tf.where(true, numbers, PAD_ID)

        with _drawing_in_a_graph():
            return batches.enumerate(first_slot).map(weighted)

    @tf.autograph.experimental.do_not_convert
    def _streamed_on(self, source: StreamSource, first_step: Any, shard: InputShard) -> Any:
        """Batches from a stream of pass after pass, from this update of the training on.

        Each element goes with its example's number + its pass × number of examples.
        """
        total, batch = self.num_examples, self.plan.global_batch
        local = self.shares.reader_batch(shard.count)
        first = tf.cast(first_step, tf.int64) * batch

        def own_before(position: Any) -> Any:
            begun = tf.clip_by_value(position % batch - shard.index * local, 0, local)
            return position // batch * local + begun

        def of_pass(number: Any) -> Any:
            skipped = tf.maximum(own_before(first) - own_before(number * total), 0)
            kept = self._kept_elements(source, number, shard).skip(skipped)
            made = self._made(source, kept, number, shard)
            return made.map(lambda example, element: (example + number * total, element))

        elements = tf.data.Dataset.range(first // total, _MANY).flat_map(of_pass)
        tf.nest.map_structure(_check_shape, elements.element_spec)
        of_batch, _ = self._drawn(source)

        def weighted(numbered: Any, element: Any) -> Any:
            numbers = numbered % total
            if of_batch is not None:
                element = of_batch(numbered // total, numbers, element)
            return element, *self._weights(numbers >= 0, 0, shard.count), numbers

        with _drawing_in_a_graph():
            batches = elements.batch(self.plan.per_replica_batch, drop_remainder=True)
            return batches.map(weighted)

    def _made(self, source: StreamSource, numbered: Any, epoch: Any, shard: InputShard) -> Any:
        """(example number, element) of (example number, raw element), decoded and augmented."""
        calls = self._of_elements(shard)
        elements = _decoded(source, numbered, calls)
        _, of_one = self._drawn(source)
        if of_one is None:
            return elements
        with _drawing_in_a_graph():
            return elements.map(
                lambda number, element: (number, of_one(epoch, number, element)),
                num_parallel_calls=calls,
                deterministic=True,
            )

    def _kept_elements(self, source: StreamSource, epoch: Any, shard: InputShard) -> Any:
        """(example number, raw element) of one reader, in order."""
        policy = self.options.shard
        files = source.parts[shard.index :: shard.count] if policy == "file" else source.parts
        elements = _numbered(source, files, self.options.interleave_files)
        if self.shuffles:
            elements = _shuffled(
                elements, self.options.shuffle_buffer, self.seed * 1_000_003 + epoch
            )
        if policy == "data":
            return elements.shard(shard.count, shard.index)
        if policy == "batch" and shard.count > 1:
            local = self.shares.reader_batch(shard.count)
            first = epoch * self.num_examples if self.shares.goes_on else 0
            own = elements.enumerate(first).filter(
                lambda position, _: position % self.plan.global_batch // local == shard.index
            )
            return own.map(lambda _, element: element)
        return elements

    def _weights(self, true: Any, step: Any, num_readers: int) -> tuple[Any, Any]:
        """Weight [per_replica_batch] and scale of a batch, in the precision of the run."""
        weights = tf.cast(true, tf.keras.backend.floatx())
        if not self.training:
            return weights, tf.ones([], weights.dtype)
        if not self.synchronous:
            return weights, self.plan.per_replica_batch / tf.reduce_sum(weights)
        counts = tf.constant(self.shares.true_counts(num_readers), weights.dtype)
        return weights, self.plan.global_batch / counts[step]

    # Autograph would turn a refusal into its own StagingError.
    @tf.autograph.experimental.do_not_convert
    def _finished(self, element: Any, weight: Any, scale: Any, ids: Any) -> Any:
        """A batch of elements and Ringside's weight → (x, y, weight, scale, id)."""
        if self.preprocess is not None:
            element = as_tuple(called(rewritten(self.preprocess), as_tuple(element)))
            check_dense(element, what="batches of `preprocess`")
        class_weight = self.class_weight if self.training else None
        fed = as_fed(element, of_arrays=self.of_arrays)
        return *unpacked(fed, weight, class_weight), scale, ids


def make_pipeline(
    spec: RunSpec, workload: Workload, capabilities: Capabilities, *, training: bool
) -> Pipeline:
    """The pipeline of the training or the validation split.

    Args:
        spec: of the run.
        workload: with the data.
        capabilities: of the backend that trains; without distribution it is not the spec's.
        training: the training split, else the validation split.
    """
    source = workload.train if training else workload.validation
    partners = None if source.augment is None else source.augment.partners
    if isinstance(partners, DrawnBatches) and capabilities.process_model == "coordinator":
        raise RefusalError(
            "A keras.utils.Sequence that draws random numbers is Python code, which workers of a "
            "parameter server cannot run.",
            received=f"{type(partners.reader.batches).__name__} under {spec.backend}",
            advice="Draw in a tf.data.Dataset's map(…), or use another backend.",
        )
    return Pipeline(
        source=source,
        preprocess=workload.preprocess,
        options=spec.pipeline,
        plan=spec.batch_plan,
        training=training,
        synchronous=capabilities.synchronous,
        seed=spec.seed,
        class_weight=workload.class_weight,
        cores=spec.resources.cores_per_replica or 2,
    )


@contextmanager
def _drawing_in_a_graph() -> Iterator[None]:
    """TensorFlow warns that a seed of the process might be used; streams of numbers use none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Seed .* from outer graph")
        yield


def _content(array: NDArray[Any]) -> bytes:
    """The elements of an array; of strings, which are objects, each with its length."""
    if array.dtype != object:
        return np.ascontiguousarray(array).tobytes()
    texts = [one if isinstance(one, bytes) else str(one).encode() for one in array.ravel()]
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


def _numbered(source: StreamSource, parts: tuple[str, ...], at_once: int = 1) -> Any:
    """(example number, raw element) of some parts, `at_once` of them read in turn.

    A FailedPreconditionError ends it if files have changed since they were counted. Passes over
    empty ones would go on without an end.
    """
    starts = dict(zip(source.parts, np.cumsum([0, *source.lengths[:-1]]), strict=True))
    counts = dict(zip(source.parts, source.lengths, strict=True))
    firsts = np.array([starts[part] for part in parts], np.int64)
    elements = tf.data.Dataset.from_tensor_slices((np.array(parts), firsts)).interleave(
        lambda part, first: source.read(part).enumerate(first), cycle_length=at_once, block_length=1
    )
    whole = sum(counts[part] for part in parts)
    return elements.apply(tf.data.experimental.assert_cardinality(whole))


def _shuffled(elements: Any, buffer: int, seed: Any) -> Any:
    """A shuffle in a function that is traced, in an order of this seed alone.

    TensorFlow would mix in its global seed, which differs between ranks.
    """
    graph = tf.compat.v1.get_default_graph()
    before, graph.seed = graph.seed, None
    try:
        return elements.shuffle(buffer, seed=seed, reshuffle_each_iteration=False)
    finally:
        graph.seed = before


def _decoded(source: StreamSource, numbered: Any, calls: int) -> Any:
    """(example number, element)."""
    if source.decode is not None:
        decode = rewritten(source.decode)
        numbered = numbered.map(
            lambda number, raw: (number, called(decode, raw)),
            num_parallel_calls=calls,
            deterministic=True,
        )
    return numbered.map(lambda number, element: (number, as_tuple(element)))


def _check_shape(spec: Any) -> None:
    if None in spec.shape.as_list():
        raise RefusalError(
            "Elements of a stream must have a fixed shape to be put into batches.",
            received=str(spec),
            advice="Resize or pad them in `decode`.",
        )


def _filtered(source: Source, keep: Callable[..., Any]) -> Source:
    """The source without the elements that `keep` drops; the rest is counted once, exactly.

    Raises:
        RefusalError: elements get other partners in each epoch.
    """
    if source.augment is not None and source.augment.partners is not None:
        raise RefusalError(
            "--filter works on elements that are the same in each epoch.",
            received="a zip of shuffled data sets, or a Sequence that draws",
            advice="Filter in the data sets of the zip, or in the Sequence.",
        )
    if isinstance(source, ArraySource):
        elements = tf.data.Dataset.from_tensor_slices(source.arrays)
        kept = np.flatnonzero(stack_elements(elements.map(lambda *e: called(keep, joined(e)))))
        arrays = tf.nest.map_structure(lambda array: array[kept], source.arrays)
        return replace(source, arrays=arrays)
    decode = one_after_another(source.decode)

    def read(part: Any) -> Any:
        return source.read(part).filter(lambda *raw: called(keep, decode(*raw)))

    lengths = tuple(sum(1 for _ in read(tf.constant(part))) for part in source.parts)
    return replace(source, read=read, lengths=lengths)
