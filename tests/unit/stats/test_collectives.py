"""Bandwidths by hand, and cost models that find the numbers their times were made of."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from ringside.stats.collectives import (
    bus_bandwidth_gb_s,
    fit_cost_model,
    predicted_seconds,
    seconds_of,
    wire_bytes,
)
from ringside_core.specs import BackendOptions, Timing, backend_options, parse_option
from tests.unit.stats.factory import spec_of

SIZES = [4 * 1024 * 4**k for k in range(9)]


def timing(seconds: float, size: int = 4096, ranks: int = 2) -> Timing:
    """One repetition in which every rank takes as long."""
    return Timing(size_bytes=size, seconds=((seconds,) * ranks,), wrong=0)


def test_bus_bandwidth_by_hand() -> None:
    """1 GB in 2 s; the factor of nccl-tests for 4 ranks is 1.5, for 2 ranks 1."""
    assert bus_bandwidth_gb_s(timing(2.0, 10**9, ranks=4)) == pytest.approx(0.75)
    assert bus_bandwidth_gb_s(timing(2.0, 10**9)) == pytest.approx(0.5)


def test_the_mean_has_an_interval_over_the_repetitions() -> None:
    """Of the means of the ranks, against SciPy; a rare stall is in the mean."""
    rows = np.random.default_rng(1).gamma(9.0, 1e-3, (50, 3))
    rows[7] += 0.2
    sample = Timing(size_bytes=8, seconds=tuple(map(tuple, rows.tolist())), wrong=0)

    found = seconds_of(sample)

    expected = stats.ttest_1samp(rows.mean(axis=1), 0).confidence_interval(0.95)
    assert found.value == pytest.approx(rows.mean())
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(expected))


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_ring_is_found_again(ranks: int) -> None:
    """Made step by step around a ring: 2(p−1) messages of n/p; also for another number of ranks."""
    alpha, beta = 20e-6, 1 / 5e9

    def ring(n: int, p: int) -> float:
        return sum(alpha + n / p * beta for _ in range(2 * (p - 1)))

    model = fit_cost_model([timing(ring(n, ranks), n, ranks) for n in SIZES])

    assert model.num_ranks == ranks
    assert model.alpha_s == pytest.approx(alpha)
    assert model.beta_s_per_byte == pytest.approx(beta)
    assert model.relative_error < 1e-9
    for p in (1, ranks, 64):
        found = predicted_seconds(model, 12345678, num_ranks=p)
        assert found == pytest.approx(ring(12345678, p))


@pytest.mark.parametrize(
    ("arm", "precision", "dtype", "sent_as"),
    [
        ("horovod:compression=fp16", "float32", np.float32, np.float16),
        ("horovod:compression=fp16", "float64", np.float64, np.float16),
        ("horovod", "float32", np.float32, np.float32),
        ("multi_worker_mirrored", "float64", np.float64, np.float64),
    ],
)
def test_a_compressed_gradient_is_sent_as_halves(
    arm: str, precision: Any, dtype: Any, sent_as: Any
) -> None:
    """As many bytes as the NumPy array that is sent; 7 elements, no power of two."""
    spec = spec_of(arm.partition(":")[0], options=options_of(arm), precision=precision)

    assert wire_bytes(np.zeros(7, dtype).nbytes, spec) == np.zeros(7, sent_as).nbytes


def options_of(arm: str) -> BackendOptions:
    """Of a backend with its options after colons."""
    backend, *pairs = arm.split(":")
    return backend_options(backend, dict(map(parse_option, pairs)))


@pytest.mark.parametrize(
    ("arm", "stack"),
    [
        ("horovod", "horovod gloo"),
        ("multi_worker_mirrored", "tf.distribute AUTO"),
        ("multi_worker_mirrored:implementation=RING", "tf.distribute RING"),
        # Settings are part of the name, in the order of the options.
        ("horovod:controller=mpi:btl_tcp_flags=9", "horovod mpi:btl_tcp_flags=9"),
        (
            "horovod:cycle_time_ms=0.5:fusion_threshold_mb=0",
            "horovod gloo:fusion_threshold_mb=0:cycle_time_ms=0.5",
        ),
        # An all-reduce of one array does not know of these.
        ("horovod:compression=fp16:num_groups=2", "horovod gloo"),
        ("multi_worker_mirrored:timeout_seconds=9", "tf.distribute AUTO"),
        ("mirrored", None),
    ],
)
def test_the_stack_of_an_arm(arm: str, stack: str | None) -> None:
    """The stack that reduces its gradients; replicas of one process use none."""
    assert options_of(arm).stack == stack
