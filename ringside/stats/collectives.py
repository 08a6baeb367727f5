"""Collectives: bandwidths as nccl-tests defines them, and a cost model: latency plus bytes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ringside_core.specs import RefusalError, RunSpec
from ringside_core.specs.communication import Operation, Timing
from ringside_core.specs.options import HorovodOptions

Floats = NDArray[np.float64]

LEAST_FOR_P99 = 100  # repetitions
HALF_BYTES = 2
ELEMENT_BYTES = {"float32": 4, "float64": 8}
# If the median error of a model is larger, `CostModel.reason` says that the model does not hold.
LARGEST_MEDIAN_ERROR = 0.25


def algorithm_bandwidth_gb_s(*, size_bytes: int, seconds: float) -> float:
    """Algorithm bandwidth, in GB/s (1 GB = 1e9 bytes).

    size / seconds, as nccl-tests defines it (doc/PERFORMANCE.md).
    """
    return size_bytes / seconds / 1e9


def allreduce_bus_bandwidth_gb_s(*, size_bytes: int, seconds: float, num_ranks: int) -> float:
    """Bus bandwidth of one all-reduce, in GB/s (1 GB = 1e9 bytes).

    size / seconds × 2(n−1)/n, as nccl-tests defines it (doc/PERFORMANCE.md).
    """
    algorithm = algorithm_bandwidth_gb_s(size_bytes=size_bytes, seconds=seconds)
    return algorithm * 2 * (num_ranks - 1) / num_ranks


def broadcast_bus_bandwidth_gb_s(*, size_bytes: int, seconds: float) -> float:
    """Bus bandwidth of one broadcast: the algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    return algorithm_bandwidth_gb_s(size_bytes=size_bytes, seconds=seconds)


def bus_bandwidth_gb_s(timing: Timing) -> float | None:
    """Bus bandwidth of a timing; None for push/pull, which nccl-tests does not define."""
    size, seconds = timing.size_bytes, times_of(timing).mean_s
    if timing.operation == "allreduce":
        return allreduce_bus_bandwidth_gb_s(
            size_bytes=size, seconds=seconds, num_ranks=timing.num_ranks
        )
    if timing.operation == "broadcast":
        return broadcast_bus_bandwidth_gb_s(size_bytes=size, seconds=seconds)
    return None


@dataclass(frozen=True)
class Times:
    """Seconds of one operation: of each rank over its repetitions, then the mean of the ranks.

    Attributes:
        mean_s: what nccl-tests prints (`--average 1`, its default), and OSU's `Avg Latency`. A rare
            stall is in it as often as it happens.
        median_s: without rare stalls.
        p99_s: one repetition in a hundred takes longer; None: fewer than LEAST_FOR_P99.
        shortest_s: mean of the rank with the smallest mean.
        longest_s: mean of the rank with the largest mean.
    """

    mean_s: float
    median_s: float
    p99_s: float | None
    shortest_s: float
    longest_s: float


def times_of(timing: Timing) -> Times:
    """Mean, median and 99th percentile over the repetitions."""
    seconds = np.array(timing.seconds)  # [repetition, rank]
    means = seconds.mean(axis=0)
    enough = len(seconds) >= LEAST_FOR_P99
    return Times(
        mean_s=float(means.mean()),
        median_s=float(np.median(seconds, axis=0).mean()),
        p99_s=float(np.quantile(seconds, 0.99, axis=0).mean()) if enough else None,
        shortest_s=float(means.min()),
        longest_s=float(means.max()),
    )


@dataclass(frozen=True)
class Terms:
    """How many latencies, bytes on a link and added bytes the time of one operation contains."""

    latencies: float
    bytes_sent: Callable[[float], float]
    bytes_added: Callable[[float], float]


def terms_of(operation: Operation, num_ranks: int, servers: int = 1) -> Terms:
    """The factors of α, β and γ for an array of n bytes among p ranks.

    allreduce, a ring: 2(p−1)·α + 2(p−1)/p·n·β + (p−1)/p·n·γ
    (Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in
    MPICH", section 4.5; Patarasuk, Yuan 2009).
    broadcast, a binomial tree: ⌈log2 p⌉·(α + n·β) (Thakur et al., section 4.2).
    push_pull: 2·α + 2·(p/s)·n·β; all p workers share the links of s servers, once in each
    direction.
    """
    p = num_ranks
    if operation == "allreduce":
        return Terms(2.0 * (p - 1), lambda n: 2 * (p - 1) / p * n, lambda n: (p - 1) / p * n)
    if operation == "broadcast":
        deep = float(math.ceil(math.log2(p)))
        return Terms(deep, lambda n: deep * n, lambda n: 0.0)
    return Terms(2.0, lambda n: 2.0 * p / servers * n, lambda n: 0.0)


@dataclass(frozen=True)
class CostModel:
    """t(n) of one operation of one stack.

    Attributes:
        alpha_s: latency of one message.
        beta_s_per_byte: 1 ÷ bandwidth of one link.
        gamma_s_per_byte: time to add one byte, measured by itself; None: it was not measured, or
            it is hidden (then it is part of β).
        relative_error: median over the sizes of |model − measured| ÷ measured.
        largest_relative_error: the largest of these errors.
        reason: why the model should not be used to predict; empty: no such reason is known.
    """

    operation: Operation
    num_ranks: int
    servers: int
    alpha_s: float
    beta_s_per_byte: float
    gamma_s_per_byte: float | None
    relative_error: float
    largest_relative_error: float
    reason: str = ""


def fit_cost_model(
    timings: Sequence[Timing], *, add_seconds_per_byte: float | None = None, servers: int = 1
) -> CostModel:
    """Fit α and β, neither negative, to the times of one operation at several sizes.

    It minimises the sum of squared *relative* errors, Σ ((model − t) ÷ t)², so that 4 KiB counts as
    much as 256 MiB. t is the mean over the repetitions, because a step waits for stalls too. γ is
    not fitted: β and γ both multiply the bytes, so only a separate measurement can tell them apart.
    If γ alone would take longer than the measured time, adding is hidden behind sending, and the
    model is fitted without γ.

    Args:
        timings: of one operation and the same ranks, at two sizes or more.
        add_seconds_per_byte: γ; only for an all-reduce.
        servers: of a push/pull.

    Raises:
        RefusalError: fewer than two sizes, several operations or numbers of ranks, or one rank.
    """
    operation, ranks = _alike(timings)
    sizes = np.array([timing.size_bytes for timing in timings], np.float64)
    measured = np.array([times_of(timing).mean_s for timing in timings])
    terms = terms_of(operation, ranks, servers)
    gamma = add_seconds_per_byte if operation == "allreduce" else None
    alpha, beta = _non_negative(terms, sizes, measured, gamma or 0.0)
    if gamma is not None and beta == 0.0:
        gamma = None
        alpha, beta = _non_negative(terms, sizes, measured, 0.0)
    model = _model(terms, alpha, beta, gamma or 0.0)
    errors = np.abs([model(size) for size in sizes] - measured) / measured
    median = float(np.median(errors))
    reason = ""
    if median > LARGEST_MEDIAN_ERROR:
        reason = f"time is not latency plus bytes: the median error is {median:.0%}"
    return CostModel(
        operation=operation,
        num_ranks=ranks,
        servers=servers,
        alpha_s=alpha,
        beta_s_per_byte=beta,
        gamma_s_per_byte=gamma,
        relative_error=median,
        largest_relative_error=float(errors.max()),
        reason=reason,
    )


def predicted_seconds(
    model: CostModel, size_bytes: float, *, num_ranks: int | None = None
) -> float:
    """The seconds that the model predicts for an array of this many bytes.

    Args:
        model: of one stack and operation.
        size_bytes: of the array of each rank; it may be 0.
        num_ranks: if not those that it was fitted with; on links of the same kind.
    """
    terms = terms_of(model.operation, num_ranks or model.num_ranks, model.servers)
    return _model(terms, model.alpha_s, model.beta_s_per_byte, model.gamma_s_per_byte or 0.0)(
        size_bytes
    )


def predicted_bytes_per_step(
    gradient_bytes: int, ranks: int, *, operation: Operation = "allreduce"
) -> float:
    """Bytes on the network for one update and one rank; times `ranks`, for all.

    allreduce, a ring: each rank sends 2(p−1)/p·n (Patarasuk, Yuan 2009, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations": no all-reduce can send less).
    push_pull: a worker sends its gradient, n, and its server sends the weights, n: 2·n.
    broadcast: (p−1)/p·n; every rank but one receives n.
    """
    if operation == "push_pull":
        return 2.0 * gradient_bytes
    share = (ranks - 1) / ranks * gradient_bytes
    return 2 * share if operation == "allreduce" else share


def wire_bytes(gradient_bytes: int, spec: RunSpec) -> int:
    """Bytes of one gradient as it is sent.

    Horovod's fp16 compression casts each element to 2 bytes before it sends it
    (horovod.tensorflow.compression.FP16Compressor): half of float32, a quarter of float64.

    Args:
        gradient_bytes: of all trainable weights, in the precision of the spec.
        spec: of the arm.
    """
    options = spec.options
    if isinstance(options, HorovodOptions) and options.compression == "fp16":
        return gradient_bytes * HALF_BYTES // ELEMENT_BYTES[spec.precision]
    return gradient_bytes


def _alike(timings: Sequence[Timing]) -> tuple[Operation, int]:
    kinds = {(timing.operation, timing.num_ranks) for timing in timings}
    sizes = {timing.size_bytes for timing in timings}
    if len(kinds) != 1 or len(sizes) < 2:
        raise RefusalError(
            "A cost model needs times of one operation among the same ranks, at two sizes or more.",
            received=f"{sorted(kinds)}, {len(sizes)} sizes",
        )
    operation, ranks = kinds.pop()
    if ranks == 1 and operation != "push_pull":
        raise RefusalError(
            "A cost model needs two ranks: one rank sends nothing.", received="1 rank"
        )
    return operation, ranks


def _non_negative(
    terms: Terms, sizes: Floats, measured: Floats, gamma: float
) -> tuple[float, float]:
    """α and β with the least squared relative error, neither negative."""
    adding = gamma * np.array([terms.bytes_added(size) for size in sizes])
    columns = np.stack(
        [np.full_like(sizes, terms.latencies), [terms.bytes_sent(size) for size in sizes]], axis=1
    )
    # Bytes are large and seconds per byte small: scaled by the largest entry, both are near 1.
    scale = (columns / measured[:, None]).max(axis=0)
    found, _ = nnls(columns / measured[:, None] / scale, 1 - adding / measured)
    alpha, beta = found / scale
    return float(alpha), float(beta)


def _model(terms: Terms, alpha: float, beta: float, gamma: float) -> Callable[[float], float]:
    return lambda n: (
        terms.latencies * alpha + terms.bytes_sent(n) * beta + terms.bytes_added(n) * gamma
    )
