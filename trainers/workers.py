"""Trains by workers that update on their own: worker w of W gets rows w::W of each global batch.

Keras' own `fit` runs on the coordinator with the author's arguments. It makes the data set, counts
steps and epochs, calls the callbacks and evaluates. Where it would train on a global batch, a step
for each worker is dispatched: the author's `train_step` on the worker's rows. The data set runs on
every worker; its graph is sent, with the values of tables and variables that it uses.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from backends.base import Backend
from backends.tf_distribute.parameter_server import ParameterServer
from ringside_core.keras import KERAS, VERSION, tf
from ringside_core.specs import RefusalError
from trainers.reading import Place, Reading, newest
from trainers.rows import cut

MOST_STALE = 64  # counts that are kept; the last one is of 63 and more


def fit_by_workers(
    backend: ParameterServer,
    model: Any,
    arguments: Mapping[str, Any],
    *,
    data: Reading,
    on_epoch: Callable[[int, tuple[int, ...]], None],
) -> Any:
    """`Model.fit` whose updates are made by the workers of a parameter server.

    A step, as Keras counts it and tells callbacks, is a global batch: W updates, which are
    dispatched when it ends and made by the end of the epoch. A worker without rows of a batch makes
    none.

    Args:
        backend: started; this process is the coordinator.
        model: built and compiled in the backend's scope.
        arguments: of `Model.fit`, by name, with a list of callbacks.
        data: from where it goes on, at the end of an epoch.
        on_epoch: called with the rows of an epoch and its staleness, before its callbacks.

    Returns:
        Keras' History. Its `updates` are the updates of each epoch, its `rows` their rows.
        `staleness[k]` of an epoch is how many of its updates were applied to weights to which k
        other updates had been applied since they were read.

    Raises:
        RefusalError: the data cannot run on workers, or do not say how long an epoch is.
    """
    take(backend, model)
    if model.run_eagerly:
        raise RefusalError(
            "A worker runs the graph of a step.",
            received="run_eagerly",
            advice="Leave run_eagerly out of compile.",
        )
    x, steps = arguments.get("x"), arguments.get("steps_per_epoch")
    endless = steps is None and isinstance(x, tf.data.Dataset) and int(x.cardinality()) < 0
    if endless or steps == -1:
        raise RefusalError(
            "The number of batches of an epoch must be known before they are dispatched.",
            received=f"data of unknown length, steps_per_epoch={steps}",
            advice="Name it: steps_per_epoch=…, or data.apply(tf.data.experimental."
            "assert_cardinality(…)).",
        )
    training = _Training(backend, model, data, on_epoch)
    with training.replacing_keras():
        history = model.fit(**{**arguments, "callbacks": [training, *arguments["callbacks"]]})
    history.updates, history.rows = training.updates, training.rows
    history.staleness = training.staleness
    return history


def take(backend: ParameterServer, model: Any) -> None:
    """Let a model's `evaluate` and `predict` run on the coordinator, as without a strategy.

    Args:
        backend: see `fit_by_workers`.
        model: see there.
    """
    strategy, held = backend.strategy, vars(model)
    strategy._should_use_with_coordinator = False  # or legacy Keras would dispatch them
    strategy.experimental_distribute_dataset = as_it_is  # public, and called by both Keras
    held["_jit_compile"] = False  # the variables lie on the servers
    if VERSION == 3:
        held["_maybe_symbolic_build"] = partial(build_symbolically, backend, model)


def as_it_is(dataset: Any, options: Any = None) -> Any:
    """A data set that a strategy need not distribute."""
    return dataset


def build_symbolically(
    backend: Backend, model: Any, iterator: Any = None, data_batch: Any = None
) -> None:
    """Keras 3 would read a batch for it, and so take the next shuffle from the training."""
    if data_batch is None:
        data_batch = _zeros(iterator._distributed_dataset.element_spec, rows=2)
    # A model that has no `call` is built by its own step.
    with backend.scope(), suppress(RuntimeError, NotImplementedError, ValueError):
        model._symbolic_build(data_batch=data_batch)


def _zeros(nest: Any, rows: int = 0) -> Any:
    return tf.nest.map_structure(
        lambda t: tf.zeros([rows if size is None else size for size in t.shape], t.dtype), nest
    )


class _Training(tf.keras.callbacks.Callback):
    """One `fit`: the data set and the training function that Keras gets, and its first callback."""

    def __init__(
        self,
        backend: ParameterServer,
        trained: Any,
        data: Reading,
        on_epoch: Callable[[int, tuple[int, ...]], None],
    ) -> None:
        super().__init__()
        self._reading, self._on_epoch = data, on_epoch
        self._supports_tf_logs = True  # it reads no logs
        self._backend, self._trained, self._coordinator = backend, trained, backend.coordinator
        self._data: Any = None  # on the workers
        place = data.place or Place()
        # Legacy Keras makes one iterator more before the first epoch.
        more = place.before.count("t") - (data.again and VERSION == 2)
        self._passes, self._iterators = max(0, more), None
        self._left_out, data.made = place.batches, place.before
        self._last: deque[Any] = deque(maxlen=self._coordinator.num_workers)
        with backend.scope():
            # Updates, their rows, and how many of them were how stale.
            self._made: Any = tf.Variable(tf.zeros([2 + MOST_STALE], tf.int64))
        self._read = np.zeros(2 + MOST_STALE, np.int64)
        self._logs: list[Any] = []  # of the last update with rows
        self.updates: list[int] = []
        self.rows: list[int] = []
        self.staleness: list[tuple[int, ...]] = []

    @contextmanager
    def replacing_keras(self) -> Iterator[None]:
        """Within this block Keras' `fit` trains by workers."""
        model, held, strategy = self._trained, vars(self._trained), self._backend.strategy
        name = KERAS.epoch_logs
        replaced = {
            "make_train_function": self._make_train_function,
            name: partial(self._epoch_logs, getattr(model, name)),
        }
        strategy.experimental_distribute_dataset = self._distribute
        held.update(replaced)
        try:
            yield
        finally:
            strategy.experimental_distribute_dataset = as_it_is
            for each in replaced:
                del held[each]
            model.train_function = None

    # The data set that Keras gets: nothing of it is read on the coordinator.

    def _distribute(self, dataset: Any, options: Any = None) -> Any:
        """Keras hands over the training's data set first, then those of evaluations."""
        if self._data is not None:
            return dataset
        if self._reading.held:
            dataset = dataset.take(1).cache().repeat()
        self.element_spec, graph = dataset.element_spec, _graph_of(dataset)
        self._data = self._coordinator.create_per_worker_dataset(partial(self._of_worker, graph))
        return self

    def _of_worker(self, graph: Any) -> Any:
        """(A worker's rows of a batch, their number) for each global batch."""
        spec, size = self.element_spec, self._coordinator.num_workers
        worker = self._coordinator.tracing_worker

        def own(*parts: Any) -> Any:
            batch = parts if isinstance(spec, tuple) else parts[0]
            part, rows, n = cut(batch, worker, size)
            if isinstance(n, int) and n % size:  # a step is traced once for all workers
                part = tf.nest.map_structure(_of_any_size, part)
            return part, tf.cast(rows, tf.int64)

        def whole() -> Any:
            variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
            return tf.data.experimental.from_variant(variant, spec)

        here = whole().skip(self._left_out) if self._left_out else whole()
        if not self._coordinator.in_turn:
            # It may make updates of others. Their order is its own: a shuffle that one worker
            # begins more often would give it other batches than the others from then on.
            here = here.concatenate(whole().repeat())
        return here.map(own)

    def __iter__(self) -> Any:
        self._passes += 1
        self._reading.made += "t"
        return iter(())

    # The training function that Keras gets

    def _make_train_function(self, force: bool = False) -> Callable[[Any], Any]:
        model, strategy = self._trained, self._backend.strategy

        def step(batch: Any) -> Any:
            logs = model.train_step(batch)
            if VERSION == 2:  # TensorBoard's callback reads it
                model._train_counter.assign_add(1)
            return logs

        @tf.function
        def run(batch: Any) -> Any:
            return tf.constant(1, tf.int64), strategy.run(step, args=(batch,))

        with self._backend.scope():
            # Makes the variables, which a condition could not.
            traced = run.get_concrete_function(self._data.element_spec[0])

        @tf.function
        def update(iterators: Any) -> Any:
            batch, rows = next(iterators)
            if rows > 0:
                with tf.device(self._made.device):  # nothing of this waits for the network
                    before = self._made[0]
                made, logs = run(batch)
                with tf.control_dependencies([made]), tf.device(self._made.device):
                    stale = tf.minimum(self._made[0] - before, MOST_STALE - 1)
                    counted = tf.one_hot(stale, MOST_STALE, dtype=tf.int64)
                    self._made.assign_add(tf.concat([[made, rows], counted], 0))
            else:
                logs = _zeros(traced.structured_outputs[1])
            return rows, logs

        def train(_: Any) -> Any:
            for _ in range(self._passes):  # Keras may begin one more than it uses
                self._iterators = iter(self._data)
                newest[:] = [self._iterators]
            self._passes = 0
            with _enough_data():
                for _ in range(self._batches * self._coordinator.num_workers):
                    self._last.append(self._coordinator.schedule(update, args=(self._iterators,)))
            return {}

        self._trained.train_function = train
        return train

    def _epoch_logs(self, upstream: Callable[[Any], Any], logs: Any) -> Any:
        """What Keras tells of an epoch from the logs of its last step, or of an evaluation."""
        if logs:
            return upstream(logs)
        with _enough_data():
            self._coordinator.join()
        read = self._made.numpy()
        updates, rows, *staleness = map(int, read - self._read)
        self._read = read
        self.updates.append(updates)
        self.rows.append(rows)
        while staleness and not staleness[-1]:
            staleness.pop()
        self.staleness.append(tuple(staleness))
        self._on_epoch(rows, self.staleness[-1])
        fetched = (each.fetch() for each in self._last)
        self._logs = [logs for rows, logs in fetched if rows][-1:] or self._logs
        return upstream(self._logs[-1])

    # The callback

    def on_train_begin(self, logs: Any = None) -> None:
        if VERSION == 3:
            self._most = self._trained.steps_per_execution
        else:
            self._most = int(self._trained._steps_per_execution.numpy())

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._backend.begin_epoch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._batches = min(self._most, self.params["steps"] - batch)


@contextmanager
def _enough_data() -> Iterator[None]:
    try:
        yield
    except tf.errors.OutOfRangeError:
        raise RefusalError(
            "The data must have as many batches as all epochs together: workers cannot end one.",
            received="fewer",
            advice="Repeat them, by Dataset.repeat(), or lower steps_per_epoch.",
        ) from None


def _of_any_size(t: Any) -> Any:
    if not isinstance(t, tf.Tensor) or not t.shape.rank:
        return t
    return tf.compat.v1.placeholder_with_default(t, [None, *t.shape[1:]])


def _graph_of(dataset: Any) -> Any:
    """The serialised graph of a data set, which yields the same on all workers."""
    spec = dataset.element_spec
    flat = [each for each in tf.nest.flatten(spec, expand_composites=True) if each is not None]
    try:
        # As under op determinism: draws of a parallel map are in order.
        optimized = tf.raw_ops.OptimizeDatasetV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            optimizations_enabled=["make_deterministic"],
            optimizations_disabled=[],
            optimizations_default=[],
            output_types=[each.dtype for each in flat],
            output_shapes=[each.shape for each in flat],
            optimization_configs=[],
        )
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=optimized, external_state_policy=1, strip_device_assignment=True
        ).numpy()
    except tf.errors.FailedPreconditionError as error:
        raise RefusalError(
            "The tables and variables of the data must lie on the coordinator.",
            received=error.message.rpartition("graph: ")[2].partition(" [Op")[0],
            advice="Make the data outside of ringside.scope(), in a script.",
        ) from None
    if not serialized:
        raise RefusalError(
            "The data that are sent to workers must fit into a message of 2 GB.",
            received="larger arrays",
            advice="Read them from files, by a tf.data.Dataset.",
        )
    graph = tf.compat.v1.GraphDef.FromString(serialized)
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    python = {n.op for body in bodies for n in body if n.op in _IN_PYTHON}
    if python:
        raise RefusalError(
            "The data must be those of a graph: workers run no Python of the script.",
            received=", ".join(sorted(python)),
            advice="Write the data as a tf.data.Dataset without generators, Sequences and "
            "tf.py_function, or as arrays.",
        )
    numbers = count(1)  # no two draw the same
    for body in bodies:
        _seed(body, numbers)
    return tf.constant(graph.SerializeToString())


def _seed(body: Any, numbers: Iterator[int]) -> None:
    """Let what has no seed draw the same on all workers."""
    constants = {node.name: node for node in body if node.op == "Const"}
    for node in body:
        number = next(numbers)
        if {"seed", "seed2"} <= {*node.attr} and not (node.attr["seed"].i or node.attr["seed2"].i):
            node.attr["seed"].i, node.attr["seed2"].i = _SEED, number
        first = next((k for name, k in _SEEDS.items() if node.op.startswith(name)), None)
        if first is None:
            continue
        own: list[Any] = [
            constants.get(name.partition(":")[0]) for name in node.input[first : first + 2]
        ]
        if all(each is not None and not tf.make_ndarray(each.attr["value"].tensor) for each in own):
            for each, value in zip(own, (_SEED, number), strict=True):
                each.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))


_IN_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "GeneratorDataset"}
_SEED = 1_383_624_295
# The first input that is a seed.
_SEEDS = {"Shuffle": 2, "RandomDataset": 0, "AnonymousSeedGenerator": 0}
