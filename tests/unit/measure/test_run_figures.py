"""Every figure of one run, against sums done by hand on made-up records."""

from typing import Any

import numpy as np
import pytest

from measure import run_figures
from specs import RefusalError, Run
from tests.unit.measure.factory import arm_of, epoch, record, run_of, spec_of

SPEC = spec_of("horovod", 2)
ARM = arm_of("horovod", 2)


def two_ranks(first: list[float], second: list[float]) -> Run:
    """A run of two ranks with these train_s, by epoch."""
    return run_of(
        ARM,
        [
            record(SPEC, [epoch(s) for s in first], 0),
            record(SPEC, [epoch(s) for s in second], 1),
        ],
    )


def parameter_server_run() -> Run:
    """Coordinator, two workers, one server; only the coordinator keeps time."""
    spec = spec_of("parameter_server", 2)
    steps: dict[str, Any] = {"step_end_s": (0.1, 0.2, 0.5), "examples": 90}
    epochs = [epoch(9.0, **steps), epoch(0.6, **steps), epoch(0.6, **steps)]
    own: dict[str, Any] = {
        "role": "server",
        "startup_s": None,
        "quality_target": None,
        "is_chief": False,
    }
    return run_of(
        arm_of("parameter_server", 2),
        [
            record(spec, epochs, task="chief-0", role="coordinator", peak_memory_bytes=10, cpu_s=1),
            record(spec, [], 1, task="worker-0", peak_memory_bytes=200, cpu_s=2, **own),
            record(spec, [], 2, task="worker-1", peak_memory_bytes=3000, cpu_s=3, **own),
            record(spec, [], 3, task="ps-0", peak_memory_bytes=40000, cpu_s=4, **own),
        ],
    )


def test_slowest_rank_of_each_epoch_decides_and_the_first_epoch_is_warm_up() -> None:
    """Throughput is examples over the slowest rank's time, epoch by epoch, without the first."""
    run = two_ranks([100.0, 2.0, 3.0], [50.0, 4.0, 1.0])

    figure = run_figures.throughput_examples_s(run)

    # max(2, 4) + max(3, 1) = 7 s for 200 examples; the mean of either rank would give more.
    assert figure.value == pytest.approx(200 / 7)


def test_one_epoch_has_no_throughput() -> None:
    """The only epoch contains the compilation: the reason stands in place of the number."""
    run = two_ranks([1.0], [1.0])

    assert run_figures.throughput_examples_s(run).value is None
    assert run_figures.throughput_examples_s(run).reason == "needs at least 2 epochs"
    assert run_figures.step_time_ms(run).reason == "needs at least 2 epochs"


def test_step_time_takes_the_slowest_rank_of_each_step() -> None:
    """Differences of each rank's step ends, max over ranks, median over all counted steps."""
    ends = np.array([[[0.1, 0.2, 0.9], [0.3, 0.4, 0.5]], [[0.2, 0.3, 0.4], [0.1, 0.6, 0.7]]])
    warm_up = epoch(9.0, step_end_s=(3.0, 6.0, 9.0))
    run = run_of(
        ARM,
        [
            record(SPEC, [warm_up, *(epoch(1.0, step_end_s=e) for e in ends[rank].tolist())], rank)
            for rank in (0, 1)
        ],
    )

    times = run_figures.step_times_ms(run)

    by_hand = 1000 * np.diff(ends, axis=2, prepend=0.0).max(axis=0).ravel()
    assert times == pytest.approx(by_hand.tolist())
    assert times == pytest.approx([200, 100, 700, 300, 500, 100])
    assert run_figures.step_time_ms(run).value == pytest.approx(250)


def test_coordinator_keeps_the_time_of_an_asynchronous_run() -> None:
    """Servers are charged for memory and CPU, and have no say in time."""
    run = parameter_server_run()

    assert run_figures.throughput_examples_s(run).value == pytest.approx(180 / 1.2)
    assert run_figures.step_times_ms(run) == pytest.approx([100, 100, 300] * 2)
    assert run_figures.peak_memory_bytes(run).value == 43_210
    assert run_figures.cpu_s_per_1000_examples(run).value == pytest.approx(1000 * 10 / 270)
    assert run_figures.startup_s(run).value == 5.0


def test_missing_process_gives_no_number() -> None:
    """The process without a record may be the slowest or the largest: no number is made up."""
    run = parameter_server_run()
    without_server = run.replace(records=run.records[:-1])
    without_rank = two_ranks([1.0, 1.0], [1.0, 1.0]).replace(
        records=two_ranks([1.0, 1.0], [1.0, 1.0]).records[:1]
    )

    assert run_figures.peak_memory_bytes(without_server).reason == (
        "3 of 4 processes left a record"
    )
    assert run_figures.cpu_s_per_1000_examples(without_server).value is None
    assert run_figures.throughput_examples_s(without_server).value is not None
    for figure in (run_figures.throughput_examples_s, run_figures.startup_s):
        assert figure(without_rank).value is None
        assert figure(without_rank).reason == "1 of 2 processes left a record"
    assert run_figures.step_times_ms(without_rank) == []


def test_start_up_is_that_of_the_slowest_process() -> None:
    """The run trains when its last process has made its first step."""
    epochs = [epoch(1.0), epoch(1.0)]
    records = [record(SPEC, epochs, 0, startup_s=4.0), record(SPEC, epochs, 1, startup_s=6.5)]

    assert run_figures.startup_s(run_of(ARM, records)).value == 6.5
    silent = run_of(ARM, [records[0], records[1].replace(startup_s=None)])
    assert run_figures.startup_s(silent).reason == "a process did not record it"


def test_memory_and_cpu_are_summed_over_processes_and_all_epochs() -> None:
    """CPU time contains start-up, so all epochs stand below it, the first one too."""
    epochs = [epoch(1.0, examples=100), epoch(1.0, examples=100)]
    records = [
        record(SPEC, epochs, 0, peak_memory_bytes=3, cpu_s=5.0),
        record(SPEC, epochs, 1, peak_memory_bytes=4, cpu_s=7.0),
    ]

    assert run_figures.peak_memory_bytes(run_of(ARM, records)).value == 7
    assert run_figures.cpu_s_per_1000_examples(run_of(ARM, records)).value == pytest.approx(60)
    silent = run_of(ARM, [records[0], records[1].replace(peak_memory_bytes=0, cpu_s=0.0)])
    assert run_figures.peak_memory_bytes(silent).reason == "a process did not record it"
    assert run_figures.cpu_s_per_1000_examples(silent).value is None


def test_target_is_reached_at_the_end_of_the_first_epoch_that_meets_it() -> None:
    """Equal is enough, a later fall does not matter, and the chief's clock counts."""
    chief = [
        epoch(1.0, end_s=11.0, accuracy=0.8),
        epoch(1.0, end_s=12.5, accuracy=0.9),
        epoch(1.0, end_s=14.0, accuracy=0.85),
    ]
    other = [epoch(1.0, end_s=99.0, accuracy=0.99)] * 3
    run = run_of(ARM, [record(SPEC, chief, 0), record(SPEC, other, 1)])

    assert run_figures.time_to_target_s(run).value == 12.5
    assert run_figures.final_quality(run).value == 0.85


def test_target_that_is_not_reached_says_so() -> None:
    """None is not a time; why there is none differs."""
    spec = spec_of("serial")
    low = [epoch(1.0, accuracy=0.1), epoch(1.0, accuracy=0.2)]

    def run(**changes: Any) -> Run:
        return run_of(arm_of("serial"), [record(spec, low, **changes)])

    assert run_figures.time_to_target_s(run()).reason == "not reached"
    assert run_figures.final_quality(run()).value == 0.2
    assert run_figures.time_to_target_s(run(quality_target=None)).reason == (
        "the workload has no target"
    )
    assert run_figures.final_quality(run(quality_target=("auc", 0.5))).reason == (
        "no validation metric 'auc'"
    )
    assert run_figures.time_to_target_s(run(is_chief=False)).reason == "no record of the chief"


def test_disagreeing_examples_are_refused_with_run_and_epoch() -> None:
    """Two processes that count another number of examples did not train the same epoch."""
    records = [
        record(SPEC, [epoch(1.0), epoch(1.0, examples=100)], 0),
        record(SPEC, [epoch(1.0), epoch(1.0, examples=99)], 1),
    ]

    with pytest.raises(RefusalError) as refused:
        run_figures.run_figures(run_of(ARM, records, number=1), "yes")

    message = str(refused.value)
    assert "the same examples of each epoch" in message
    assert "run 'horovod ×2' of round 2, epoch 2: rank-0 100, rank-1 99" in message


def test_epochs_that_only_one_process_recorded_are_refused() -> None:
    """A rank that stopped early would be counted as quick."""
    records = [record(SPEC, [epoch(1.0)] * 3, 0), record(SPEC, [epoch(1.0)] * 2, 1)]

    with pytest.raises(RefusalError, match="epoch 3: rank-0 100, rank-1 none"):
        run_figures.run_figures(run_of(ARM, records), "yes")


def test_disagreeing_numbers_of_steps_are_refused() -> None:
    """The slowest rank of a step can only be found if all made the same steps."""
    records = [
        record(SPEC, [epoch(1.0), epoch(1.0)], 0),
        record(SPEC, [epoch(1.0), epoch(1.0, step_end_s=(0.3, 0.6, 1.0))], 1),
    ]

    with pytest.raises(RefusalError, match="the same steps of each epoch"):
        run_figures.run_figures(run_of(ARM, records), "yes")


def test_failed_run_has_no_figures() -> None:
    """Half a run gives no number, whatever its records hold."""
    run = two_ranks([1.0, 1.0], [1.0, 1.0]).replace(outcome={"kind": "failed", "reason": "boom"})

    figures = run_figures.run_figures(run, "yes")

    for name in run_figures.FIGURES:
        assert getattr(figures, name).value is None
        assert getattr(figures, name).reason == "the run failed"
    assert figures.each_example_once == "unknown"
