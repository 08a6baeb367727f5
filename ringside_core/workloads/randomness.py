"""Random numbers from a stream of one's choice, whatever function of TensorFlow asks for them.

tf.random, tf.image.random_*, tf.random.Generator, dropout and Keras' layers all end in a handful of
generated operations. While `drawing_from` is open, this thread's calls of those are answered by the
given stream instead. So a user's own code draws tied numbers without being changed.
"""

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

from ringside_core.keras import (
    control_flow_ops,
    gen_random_ops,
    gen_stateful_random_ops,
    gen_stateless_random_ops_v2,
    let_seeds_be_answered,
    random_seed,
    tf,
)
from ringside_core.specs import RefusalError

# Operations whose results differ from call to call, as they are named in a graph.
RANDOM_OPERATIONS = frozenset(
    {
        "Multinomial",
        "NonDeterministicInts",
        "ParameterizedTruncatedNormal",
        "RandomCrop",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "RngReadAndSkip",
        "RngSkip",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "StatefulRandomBinomial",
        "TruncatedNormal",
    }
)
_STATELESS_BRANCHES = ("StatelessCase", "StatelessIf", "StatelessWhile")
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp")
GENERATOR_STATE = "rng_read_and_skip"
# Those that run Python code, whose draws nobody can tie.
PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
# 2**63 ÷ the golden ratio: small multiples of it lie far apart, so close seeds stay distinct.
_APART = 0x4F1BBCDCBFA53C01
_LOOPS = ("while_body", "while_cond", "loop_body")


class Stream(ABC):
    """Answers what is drawn while it is open."""

    @abstractmethod
    def answer(self, operation: str, given: dict[str, Any]) -> Any:
        """The result of a generated operation.

        Args:
            operation: one of DRAWN.
            given: its arguments by name, but for seeds and its name.
        """

    def state(self) -> Any:
        """What a generator that keeps a state draws from, [3] int64; None: its own state."""
        return None

    def answer_seeded(self, operation: str, given: dict[str, Any]) -> Any:
        """The result of an operation that is given its seed; most streams leave it as it is.

        Args:
            operation: one of SEEDED.
            given: its arguments by name, with `key` and `counter`.
        """
        return by_tensorflow(operation, given)


class Draws:
    """Numbers draws as they are traced.

    Those by one seed of the author's have one number, such as the flips of an image and of its
    mask: TensorFlow begins a stream with it at each place. A generator goes on in its own.

    Attributes:
        count: how many there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._of_seeds: dict[Any, int] = {}
        self._of_generators: dict[int, int] = {}

    def next(self) -> int:
        """The number of a draw that is made now, from 1."""
        self.count += 1
        source: _Source | None = getattr(_here, "source", None)
        if source is None or source.seed is None:
            return self.count
        before = 0
        if source.generator is not None:
            before = self._of_generators.get(source.generator, 0)
            self._of_generators[source.generator] = before + 1
        return self._of_seeds.setdefault((source.kind, source.seed, before), self.count)


class _Source(NamedTuple):
    """What asks for random numbers.

    Attributes:
        kind: of operation or generator.
        seed: that its author gave it, or the state that it has; None: neither is known.
        generator: which one; None: an operation.
    """

    kind: str
    seed: Any
    generator: int | None = None


class SeededStream(Stream):
    """Draw number n is a function of a seed and n.

    Attributes:
        draws: numbers them.
    """

    def __init__(self, seed: Any) -> None:
        """Begin with draw 0.

        Args:
            seed: [2], any integer type.
        """
        self._seed, self.draws = tf.cast(seed, tf.int64), Draws()

    def answer(self, operation: str, given: dict[str, Any]) -> Any:
        """See Stream.

        Raises:
            RefusalError: the draw is in a loop.
        """
        if in_loop(self._seed):
            raise RefusalError(
                "Random numbers must be drawn outside of loops of the graph: a loop is traced "
                "once, so each of its rounds would get the same.",
                received="a draw within tf.while_loop or tf.map_fn",
                advice="Draw all numbers before the loop.",
            )
        # One operation; a fold_in takes three. TensorFlow scrambles each seed before its use.
        seed = self._seed + tf.constant([self.draws.next() * _APART % 2**63, 0], tf.int64)
        return _SEEDED[operation](seed, **given)

    def state(self) -> Any:
        """See Stream."""
        return self.answer(GENERATOR_STATE, {})


def by_tensorflow(operation: str, given: dict[str, Any]) -> Any:
    """The result of a generated operation as if no stream were open."""
    return _UPSTREAM[operation](**given)


@contextmanager
def drawing_from(stream: Stream | None) -> Iterator[None]:
    """Let what this thread draws be answered by a stream; None: by TensorFlow."""
    before = stream_here()
    _here.stream = stream
    try:
        yield
    finally:
        _here.stream = before


def stream_here() -> Stream | None:
    """The stream that answers what this thread draws; None: TensorFlow does."""
    return getattr(_here, "stream", None)


def in_loop(since: Any) -> bool:
    """Whether what is traced now is within a loop of the graph that began after a tensor was made.

    Args:
        since: the tensor: in each round of a loop around it, it is another one.
    """
    if getattr(_here, "vectorized", False):
        return True
    end = since.graph if tf.is_symbolic_tensor(since) else None
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and graph is not end:
        if any(loop in getattr(graph, "name", "") for loop in _LOOPS):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def random_operations(functions: Any) -> list[str]:
    """Names of the operations in traced functions whose results differ from call to call.

    A generator of Keras 3 keeps its state in a variable, and gives it as a seed.

    Args:
        functions: concrete functions.
    """
    found = operations(functions)
    seeded = any(n.startswith("Stateless") and n not in _STATELESS_BRANCHES for n in found)
    return [n for n in found if n in RANDOM_OPERATIONS or (seeded and n in _ASSIGNMENTS)]


def operations(functions: Any) -> list[str]:
    """Names of all operations in traced functions, also in those that they call; each once."""
    return list(dict.fromkeys(node.op for node in nodes(functions)))


def nodes(functions: Any) -> list[Any]:
    """All operations in traced functions, also in those that they call, as TensorFlow's NodeDef."""
    found: list[Any] = []
    for function in functions:
        graph = function.graph.as_graph_def()
        found += [*graph.node, *(n for inner in graph.library.function for n in inner.node_def)]
    return found


_here = threading.local()
_UPSTREAM: dict[str, Callable[..., Any]] = {}


def _uniform_int(seed: Any, *, shape: Any, minval: Any, maxval: Any) -> Any:
    low = tf.convert_to_tensor(minval)
    return tf.random.stateless_uniform(shape, seed, minval=low, maxval=maxval, dtype=low.dtype)


def _of_each(shape: Any, of: Any) -> Any:
    """Shape of so many numbers for each of some parameters."""
    return tf.concat([tf.cast(shape, tf.int32), tf.shape(of)], axis=0)


def _gamma(seed: Any, *, shape: Any, alpha: Any) -> Any:
    alpha = tf.convert_to_tensor(alpha)
    return tf.random.stateless_gamma(_of_each(shape, alpha), seed, alpha, dtype=alpha.dtype)


def _poisson(seed: Any, *, shape: Any, rate: Any, dtype: Any = tf.int64) -> Any:
    rate = tf.convert_to_tensor(rate)
    return tf.random.stateless_poisson(_of_each(shape, rate), seed, rate, dtype=dtype)


def _classes(seed: Any, *, logits: Any, num_samples: Any, output_dtype: Any = tf.int64) -> Any:
    return tf.random.stateless_categorical(logits, num_samples, seed, output_dtype)


def _generator_state(seed: Any, **given: Any) -> Any:
    """The state [3] from which a tf.random.Generator makes its next numbers."""
    del given
    return tf.random.stateless_uniform([3], seed, minval=None, maxval=None, dtype=tf.int64)


_SEEDED: dict[str, Callable[..., Any]] = {
    "multinomial": _classes,
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
    "random_shuffle": lambda seed, value: tf.random.experimental.stateless_shuffle(value, seed),
    "random_standard_normal": lambda seed, **given: tf.random.stateless_normal(seed=seed, **given),
    "random_uniform": lambda seed, **given: tf.random.stateless_uniform(seed=seed, **given),
    "random_uniform_int": _uniform_int,
    GENERATOR_STATE: _generator_state,
    "truncated_normal": lambda seed, **given: tf.random.stateless_truncated_normal(
        seed=seed, **given
    ),
}
DRAWN = frozenset(_SEEDED)
"""The generated operations that a stream answers, by the names of their functions."""


SEEDED = (
    "stateless_random_normal_v2",
    "stateless_random_uniform_full_int_v2",
    "stateless_random_uniform_int_v2",
    "stateless_random_uniform_v2",
    "stateless_truncated_normal_v2",
)
"""The generated operations that are given their seed."""


def _let_streams_answer(name: str) -> None:
    modules: Any = (gen_random_ops, gen_stateful_random_ops, gen_stateless_random_ops_v2)
    module = next(one for one in modules if hasattr(one, name))
    upstream = _UPSTREAM[name] = getattr(module, name)
    signature = inspect.signature(upstream)

    def answered(*args: Any, **kwargs: Any) -> Any:
        stream = stream_here()
        if stream is None:
            return upstream(*args, **kwargs)
        given = dict(signature.bind(*args, **kwargs).arguments)
        if name in SEEDED:
            return stream.answer_seeded(name, given)
        seed = given.get("seed2")
        source = _Source(name, int(seed)) if isinstance(seed, _AuthorsSeed) else None
        for unused in ("seed", "seed2", "name"):
            given.pop(unused, None)
        with _asked_by(source or getattr(_here, "source", None)):
            return stream.answer(name, given)

    setattr(module, name, answered)


def _note_vectorized(name: str) -> None:
    """tf.vectorized_map traces its function once, in the graph where it stands."""
    upstream = getattr(control_flow_ops, name)

    def noting(*args: Any, **kwargs: Any) -> Any:
        before, _here.vectorized = getattr(_here, "vectorized", False), True
        try:
            return upstream(*args, **kwargs)
        finally:
            _here.vectorized = before

    setattr(control_flow_ops, name, noting)


class _AuthorsSeed(int):
    """The seed of an operation that its author has written."""


def _note_seed(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def noted(seed: Any) -> Any:
        of_graph, of_operation = upstream(seed)
        written = isinstance(seed, Integral) and isinstance(of_operation, Integral)
        return of_graph, _AuthorsSeed(of_operation) if written else of_operation

    return noted


@contextmanager
def _asked_by(source: _Source | None) -> Iterator[None]:
    before, _here.source = getattr(_here, "source", None), source
    try:
        yield
    finally:
        _here.source = before


def _note_generators() -> None:
    """Each tf.random.Generator says who it is when it draws, and where it begins.

    Those of one seed have one state. It does not go on here, as a stream answers.
    """
    kind = tf.random.Generator
    skip = kind._skip_single_var

    def skipped(self: Any, variable: Any, delta: Any) -> Any:
        state = None
        if stream_here() is not None and hasattr(variable, "numpy"):
            with tf.init_scope():
                state = tuple(variable.numpy().tolist())
        with _asked_by(_Source("generator", state, id(self))):
            return skip(self, variable, delta)

    kind._skip_single_var = skipped


def _state_here(generator: Any) -> Any:
    """What a generator of Keras 3 is to give."""
    stream = stream_here()
    if stream is None:
        return None
    with _asked_by(_Source("generator", generator._initial_seed, id(generator))):
        return stream.state()


let_seeds_be_answered(_state_here)
random_seed.get_seed = _note_seed(random_seed.get_seed)
_note_generators()
_note_vectorized("pfor")
for _name in (*DRAWN, *SEEDED):
    _let_streams_answer(_name)
