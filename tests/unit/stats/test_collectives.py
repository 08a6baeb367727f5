"""Bandwidths by hand, and cost models that find the numbers their times were made of."""

from typing import Any

import numpy as np
import pytest

from ringside.stats.collectives import (
    algorithm_bandwidth_gb_s,
    allreduce_bus_bandwidth_gb_s,
    bus_bandwidth_gb_s,
    fit_cost_model,
    predicted_bytes_per_step,
    predicted_seconds,
    times_of,
    wire_bytes,
)
from ringside_core.specs import (
    RefusalError,
    RunSpec,
    Timing,
    Topology,
    backend_options,
)
from ringside_core.specs.communication import Operation

SIZES = [4 * 1024 * 4**k for k in range(9)]


def timing(
    seconds: float, size: int = 4096, operation: Operation = "allreduce", ranks: int = 2
) -> Timing:
    """One repetition in which every rank takes as long."""
    return Timing(operation=operation, size_bytes=size, seconds=((seconds,) * ranks,), wrong=0)


def test_bandwidths_by_hand() -> None:
    """1 GB in 2 s; nccl-tests' factors for 4 ranks are 1.5 and 1."""
    assert algorithm_bandwidth_gb_s(size_bytes=10**9, seconds=2.0) == 0.5
    assert allreduce_bus_bandwidth_gb_s(
        size_bytes=10**9, seconds=2.0, num_ranks=4
    ) == pytest.approx(0.75)
    assert bus_bandwidth_gb_s(timing(2.0, 10**9, ranks=4)) == pytest.approx(0.75)
    assert bus_bandwidth_gb_s(timing(2.0, 10**9, "broadcast", 4)) == pytest.approx(0.5)
    assert bus_bandwidth_gb_s(timing(2.0, 10**9, "push_pull", 4)) is None


def test_times_are_of_each_rank_and_their_mean() -> None:
    """By hand: means 3.1 s and 0.4 s, medians 0.2 s and 0.4 s; too few repetitions for a p99."""
    samples = ((0.1, 0.3), (0.2, 0.5), (9.0, 0.4))

    times = times_of(Timing(operation="allreduce", size_bytes=8, seconds=samples, wrong=0))

    assert times.mean_s == pytest.approx((3.1 + 0.4) / 2)
    assert times.median_s == pytest.approx((0.2 + 0.4) / 2)
    assert times.p99_s is None
    assert (times.shortest_s, times.longest_s) == pytest.approx((0.4, 3.1))


def with_retransmissions(
    count: int = 200, size: int = 10**6, ranks: int = 2, every: int = 50
) -> Timing:
    """Operations of 1 ms; one in so many waits 200 ms more for a lost packet, in all ranks."""
    seconds = [(0.001 + 0.2 * (k % every == every - 1),) * ranks for k in range(count)]
    return Timing(operation="allreduce", size_bytes=size, seconds=tuple(seconds), wrong=0)


def test_rare_retransmissions_are_in_the_mean_and_in_p99() -> None:
    """2 % of them: 1 + 0.02·200 = 5 ms, as nccl-tests and OSU print; the median is 1 ms."""
    timing = with_retransmissions()

    times = times_of(timing)

    assert times.mean_s == pytest.approx(5e-3)
    assert times.median_s == pytest.approx(1e-3)
    assert times.p99_s == pytest.approx(0.201)
    assert bus_bandwidth_gb_s(timing) == pytest.approx(1e6 / 5e-3 / 1e9)


def test_models_and_predictions_are_of_the_mean() -> None:
    """t = 5 ms + n·1e-10 s on average: half of the latency is α; a step waits for that."""
    timings = [
        with_retransmissions(size=n).replace(
            seconds=tuple(
                tuple(s + n * 1e-10 for s in row) for row in with_retransmissions().seconds
            )
        )
        for n in SIZES
    ]

    model = fit_cost_model(timings)

    assert model.alpha_s == pytest.approx(2.5e-3)
    assert model.beta_s_per_byte == pytest.approx(1e-10)
    assert predicted_seconds(model, SIZES[3]) == pytest.approx(5e-3 + SIZES[3] * 1e-10)


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_ring_is_found_again(ranks: int) -> None:
    """The times are made by 2(p−1)α + 2(p−1)/p·nβ + (p−1)/p·nγ, step by step around a ring."""
    alpha, beta, gamma = 20e-6, 1 / 5e9, 1 / 8e9

    def ring(n: int) -> float:
        scatter = sum(alpha + n / ranks * (beta + gamma) for _ in range(ranks - 1))
        gather = sum(alpha + n / ranks * beta for _ in range(ranks - 1))
        return scatter + gather

    model = fit_cost_model(
        [timing(ring(n), n, ranks=ranks) for n in SIZES], add_seconds_per_byte=gamma
    )

    assert model.alpha_s == pytest.approx(alpha)
    assert model.beta_s_per_byte == pytest.approx(beta)
    assert model.gamma_s_per_byte == gamma
    assert model.largest_relative_error < 1e-9
    assert predicted_seconds(model, 12345678) == pytest.approx(ring(12345678))


@pytest.mark.parametrize(
    ("operation", "ranks", "latencies", "bytes_factor"),
    [("broadcast", 2, 1, 1), ("broadcast", 8, 3, 3), ("push_pull", 3, 2, 6)],
)
def test_other_operations_are_found_again(
    operation: Operation, ranks: int, latencies: int, bytes_factor: int
) -> None:
    """A tree of ⌈log2 p⌉ levels; p workers at one server, once each way."""
    alpha, beta = 5e-5, 1 / 2e9
    times = [
        timing(latencies * alpha + bytes_factor * n * beta, n, operation, ranks) for n in SIZES
    ]

    model = fit_cost_model(times, add_seconds_per_byte=1e-10)

    assert model.alpha_s == pytest.approx(alpha)
    assert model.beta_s_per_byte == pytest.approx(beta)
    assert model.gamma_s_per_byte is None


def test_small_sizes_count_as_much_as_large_ones() -> None:
    """With 5 % of noise α is close, although it is a millionth of the largest time."""
    alpha, beta = 1e-6, 1 / 4e9
    noise = np.random.default_rng(3).normal(1, 0.05, len(SIZES))
    times = [timing((2 * alpha + n * beta) * e, n) for n, e in zip(SIZES, noise, strict=True)]

    model = fit_cost_model(times)

    assert model.alpha_s == pytest.approx(alpha, rel=0.1)
    assert model.beta_s_per_byte == pytest.approx(beta, rel=0.1)
    assert model.relative_error < 0.1
    assert model.reason == ""


def test_adding_that_is_hidden_is_left_out() -> None:
    """If γ alone would take longer than the whole, β takes its part and γ is None."""
    times = [timing(1e-5 + n * 1e-10, n) for n in SIZES]

    model = fit_cost_model(times, add_seconds_per_byte=1e-9)

    assert model.gamma_s_per_byte is None
    assert model.beta_s_per_byte == pytest.approx(1e-10)
    assert model.largest_relative_error < 1e-9


def test_times_that_fall_give_no_negative_parts_and_say_so() -> None:
    """No line with α, β ≥ 0 fits; the reason has the error."""
    times = [timing(1.0 / (1 + k * k), n) for k, n in enumerate(SIZES)]

    model = fit_cost_model(times)

    assert model.alpha_s >= 0
    assert model.beta_s_per_byte >= 0
    assert model.relative_error > 0.25
    assert "latency plus bytes" in model.reason


def test_no_model_of_one_size_or_of_mixed_things() -> None:
    """It is refused, not guessed."""
    for times in (
        [timing(1.0)],
        [timing(1.0), timing(2.0)],
        [timing(1.0, 8), timing(2.0, 16, "broadcast")],
        [timing(1.0, 8), timing(2.0, 16, ranks=3)],
    ):
        with pytest.raises(RefusalError, match="one operation among the same ranks"):
            fit_cost_model(times)
    with pytest.raises(RefusalError, match="needs two ranks"):
        fit_cost_model([timing(1.0, 8, ranks=1), timing(2.0, 16, ranks=1)])


def test_a_prediction_for_more_ranks() -> None:
    """The same links: 2(p−1)α + 2(p−1)/p·nβ, by hand for p = 8."""
    model = fit_cost_model([timing(2e-5 + n * 1e-9, n) for n in SIZES])

    assert predicted_seconds(model, 8e6, num_ranks=8) == pytest.approx(14 * 1e-5 + 1.75 * 8e-3)
    assert predicted_seconds(model, 8e6, num_ranks=1) == 0


def test_bytes_of_a_ring_are_counted_hop_by_hop() -> None:
    """Each of p ranks sends a p-th of the array 2(p−1) times; a worker and its server n each."""
    for ranks in (1, 2, 3, 5):
        hops = sum(3000 / ranks for _ in range(2 * (ranks - 1)))

        assert predicted_bytes_per_step(3000, ranks) == pytest.approx(hops)
        assert predicted_bytes_per_step(3000, ranks, operation="push_pull") == 6000


@pytest.mark.parametrize(
    ("backend", "options", "precision", "dtype", "sent_as"),
    [
        ("horovod", {"compression": "fp16"}, "float32", np.float32, np.float16),
        ("horovod", {"compression": "fp16"}, "float64", np.float64, np.float16),
        ("horovod", {}, "float32", np.float32, np.float32),
        ("horovod", {}, "float64", np.float64, np.float64),
        ("multi_worker_mirrored", {}, "float32", np.float32, np.float32),
        ("serial", {}, "float64", np.float64, np.float64),
    ],
)
def test_a_compressed_gradient_is_sent_as_halves(
    backend: str, options: dict[str, Any], precision: Any, dtype: Any, sent_as: Any
) -> None:
    """As many bytes as the NumPy array that is sent; 7 elements, no power of two."""
    gradient = np.zeros(7, dtype)
    spec = RunSpec(
        backend=backend,
        options=backend_options(backend, options),
        topology=Topology(),
        global_batch=32,
        epochs=1,
        precision=precision,
    )

    assert wire_bytes(gradient.nbytes, spec) == gradient.astype(sent_as).nbytes


def test_the_stack_of_an_arm() -> None:
    """The stack that sends its gradients; replicas of one process use none."""
    pairs: list[tuple[str, dict[str, Any], str | None]] = [
        ("horovod", {}, "horovod gloo"),
        ("horovod", {"controller": "mpi"}, "horovod mpi"),
        ("multi_worker_mirrored", {}, "tf.distribute AUTO"),
        ("multi_worker_mirrored", {"implementation": "RING"}, "tf.distribute RING"),
        ("parameter_server", {}, "parameter_server"),
        # Settings are part of the name, as `ringside allreduce --stacks` has them.
        ("parameter_server", {"servers": 2}, "parameter_server:servers=2"),
        (
            "horovod",
            {"controller": "mpi", "btl_tcp_flags": 9},
            "horovod mpi:btl_tcp_flags=9",
        ),
        (
            "horovod",
            {"cycle_time_ms": 0.5, "fusion_threshold_mb": 0},
            "horovod gloo:fusion_threshold_mb=0:cycle_time_ms=0.5",
        ),
        (
            "multi_worker_mirrored",
            {"implementation": "RING", "bytes_per_pack": 2**20},
            "tf.distribute RING:bytes_per_pack=1048576",
        ),
        # A collective of one array does not know of these.
        ("horovod", {"compression": "fp16", "num_groups": 2}, "horovod gloo"),
        ("multi_worker_mirrored", {"timeout_seconds": 9.0}, "tf.distribute AUTO"),
        ("mirrored", {}, None),
        ("serial", {}, None),
    ]

    for backend, options, stack in pairs:
        assert backend_options(backend, options).stack == stack
