"""All-reduces: their time, their bandwidth, and a model of both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from ringside.stats.figure import Figure, Interval, mean_with_interval
from ringside_core.specs import RefusalError, RunSpec, Timing
from ringside_core.specs.options import HorovodOptions


def seconds_of(timing: Timing) -> Figure:
    """Mean seconds over the ranks and repetitions, with the interval over the repetitions.

    nccl-tests and OSU print this mean too: a rare stall is in it as often as it happens. The
    interval is about more repetitions in the same processes, not about another run.
    """
    found = mean_with_interval([float(np.mean(row)) for row in timing.seconds])
    within = found.interval and Interval(max(0.0, found.interval.low), found.interval.high)
    return replace(found, interval=within)


def mean_seconds(timing: Timing) -> float:
    """Mean seconds over the ranks and repetitions."""
    return float(np.mean(timing.seconds))


def bus_bandwidth_gb_s(timing: Timing) -> float:
    """Bus bandwidth of an all-reduce at its mean time, in GB/s (1 GB = 1e9 bytes).

    size / seconds × 2(n−1)/n, as nccl-tests defines it (doc/PERFORMANCE.md).
    """
    ranks = timing.num_ranks
    return timing.size_bytes / mean_seconds(timing) / 1e9 * 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class CostModel:
    """The time of a ring among p ranks: t(n) = 2(p−1)·α + 2(p−1)/p·n·β.

    (Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in
    MPICH", section 4.5. Their γ, the time to add a byte, grows as β does and is in it.)

    Attributes:
        num_ranks: of the timings that it was fitted to.
        alpha_s: latency of one message.
        beta_s_per_byte: to send a byte to the next rank, and to add it.
        relative_error: median over the sizes of |model − measured| ÷ measured.
    """

    num_ranks: int
    alpha_s: float
    beta_s_per_byte: float
    relative_error: float


def fit_cost_model(timings: Sequence[Timing]) -> CostModel:
    """Fit α and β, neither negative, to the mean times of one stack at several sizes.

    It minimises the sum of squared *relative* errors, so that 4 KiB counts as much as 256 MiB.
    Fewer than two sizes, one rank, or several numbers of ranks are refused.
    """
    sizes, ranks = ({getattr(one, name) for one in timings} for name in ("size_bytes", "num_ranks"))
    if len(sizes) < 2 or len(ranks) != 1 or ranks == {1}:
        raise RefusalError(
            "A cost model needs all-reduces among the same ranks, two or more, at two sizes.",
            received=f"{len(sizes)} sizes, {sorted(ranks)} ranks",
        )
    (p,) = ranks
    measured = np.array([mean_seconds(timing) for timing in timings])
    terms = np.array([[2 * (p - 1), 2 * (p - 1) / p * timing.size_bytes] for timing in timings])
    relative = terms / measured[:, None]
    # Bytes are large and seconds per byte small: scaled by the largest entry, both are near 1.
    scale = relative.max(axis=0)
    scaled, _ = nnls(relative / scale, np.ones(len(timings)))
    alpha, beta = map(float, scaled / scale)
    error = float(np.median(np.abs(relative @ (alpha, beta) - 1)))
    return CostModel(p, alpha, beta, error)


def predicted_seconds(model: CostModel, size_bytes: float, *, num_ranks: int) -> float:
    """The seconds of an all-reduce of this many bytes among this many ranks."""
    p = num_ranks
    return 2 * (p - 1) * (model.alpha_s + size_bytes / p * model.beta_s_per_byte)


def wire_bytes(gradient_bytes: int, spec: RunSpec) -> int:
    """Bytes of one gradient as it is sent.

    Horovod's fp16 compression casts each element to 2 bytes before it sends it
    (horovod.tensorflow.compression.FP16Compressor): half of float32, a quarter of float64.
    """
    options = spec.options
    if isinstance(options, HorovodOptions) and options.compression == "fp16":
        return gradient_bytes * 2 // np.dtype(spec.precision).itemsize
    return gradient_bytes
