"""Every figure of one run, start-up and costs too, against sums by hand on made-up records."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ringside.stats import run_figures
from ringside.stats.step_times import LEAST_MARKED, counted_blocks, counted_epochs, step_times_ms
from ringside_core.specs import Block, EpochRecord, RefusalError, Run
from tests.unit.stats.factory import (
    STARTED_UNIX_S,
    arm_of,
    epoch,
    live_run,
    record,
    run_of,
    spec_of,
)

SPEC = spec_of("horovod", 2)
ARM = arm_of("horovod", 2)


def two_ranks(first: list[float], second: list[float]) -> Run:
    """A run of two ranks with these train_s, by epoch."""
    return run_of(
        ARM,
        [record(SPEC, [epoch(s) for s in first], 0), record(SPEC, [epoch(s) for s in second], 1)],
    )


def parameter_server_run() -> Run:
    """Coordinator, two workers, one server; only the coordinator keeps time."""
    spec = spec_of("parameter_server", 2)
    steps: dict[str, Any] = {"step_end_s": (0.1, 0.2, 0.5), "examples": 90}
    epochs = [epoch(9.0, **steps), epoch(0.6, **steps), epoch(0.6, **steps)]
    little: dict[str, Any] = {"shared_memory_bytes": 0, "startup_cpu_s": 0.25}
    own: dict[str, Any] = {
        "role": "server",
        "startup_s": None,
        "quality_target": None,
        "is_chief": False,
    }
    return run_of(
        arm_of("parameter_server", 2),
        [
            record(
                spec,
                epochs,
                task="chief-0",
                role="coordinator",
                peak_memory_bytes=10,
                cpu_s=1,
                **little,
            ),
            record(spec, [], 1, task="worker-0", peak_memory_bytes=200, cpu_s=2, **own, **little),
            record(spec, [], 2, task="worker-1", peak_memory_bytes=3000, cpu_s=3, **own, **little),
            record(spec, [], 3, task="ps-0", peak_memory_bytes=40000, cpu_s=4, **own, **little),
        ],
    )


def test_slowest_rank_of_each_epoch_decides_and_the_first_epoch_is_warm_up() -> None:
    """Throughput is examples ÷ the slowest rank's time, without the first epoch."""
    run = two_ranks([100.0, 2.0, 3.0], [50.0, 4.0, 1.0])

    figure = run_figures.throughput_examples_s(run)

    # max(2, 4) + max(3, 1) = 7 s for 200 examples; the mean of either rank would give more.
    assert figure.value == pytest.approx(200 / 7)


def test_whole_epochs_count_what_is_paid_between_them() -> None:
    """In each epoch the process counts that takes longest with it; validation does not count."""
    times = {0: [(9.0, 1.0), (2.0, 0.5), (3.0, 0.25)], 1: [(9.0, 9.0), (1.0, 2.5), (2.5, 0.5)]}
    records = [
        record(SPEC, [epoch(train_s, beside_s=beside_s) for train_s, beside_s in own], rank)
        for rank, own in times.items()
    ]

    figure = run_figures.whole_epochs_examples_s(run_of(ARM, records))

    assert figure.value == pytest.approx(200 / (3.5 + 3.25))
    assert run_figures.throughput_examples_s(run_of(ARM, records)).value == pytest.approx(200 / 5)
    silent = [records[0].replace(epochs=[epoch(2.0, beside_s=None)] * 3), records[1]]
    assert run_figures.whole_epochs_examples_s(run_of(ARM, silent)).reason == (
        "a process did not record it"
    )


def test_one_epoch_has_no_throughput() -> None:
    """The only epoch contains the compilation; the reason replaces the number."""
    run = two_ranks([1.0], [1.0])

    assert run_figures.throughput_examples_s(run).value is None
    assert run_figures.throughput_examples_s(run).reason == "needs at least 2 epochs"
    assert run_figures.step_quantiles_ms(run)[0].reason == "needs at least 2 epochs"


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

    times = step_times_ms(run)

    by_hand = 1000 * np.diff(ends, axis=2, prepend=0.0).max(axis=0).ravel()
    assert times == pytest.approx(by_hand.tolist())
    assert times == pytest.approx([200, 100, 700, 300, 500, 100])
    assert run_figures.step_quantiles_ms(run)[0].value == pytest.approx(250)


def test_coordinator_keeps_the_time_of_an_asynchronous_run() -> None:
    """Servers count for memory and CPU, not for time."""
    run = parameter_server_run()

    assert run_figures.throughput_examples_s(run).value == pytest.approx(180 / 1.2)
    assert step_times_ms(run) == pytest.approx([100, 100, 300] * 2)
    assert run_figures.peak_pss_bytes(run).value == 43_210
    # A second until the first step, which has 16 slots.
    assert run_figures.startup_cpu_s(run).value == 1.0
    assert run_figures.cpu_s_per_1000_examples(run).value == pytest.approx(1000 * 9 / (270 - 16))
    assert run_figures.startup_s(run).value == 5.0


def test_missing_process_gives_no_number() -> None:
    """The process without a record may be the slowest or the largest."""
    run = parameter_server_run()
    without_server = run.replace(records=run.records[:-1])
    without_rank = two_ranks([1.0, 1.0], [1.0, 1.0]).replace(
        records=two_ranks([1.0, 1.0], [1.0, 1.0]).records[:1]
    )

    assert run_figures.peak_pss_bytes(without_server).reason == ("3 of 4 processes left a record")
    assert run_figures.cpu_s_per_1000_examples(without_server).value is None
    assert run_figures.throughput_examples_s(without_server).value is not None
    for figure in (run_figures.throughput_examples_s, run_figures.startup_s):
        assert figure(without_rank).value is None
        assert figure(without_rank).reason == "1 of 2 processes left a record"
    assert step_times_ms(without_rank) == []


def test_start_up_is_that_of_the_slowest_process() -> None:
    """A run trains once its last process has made its first step."""
    epochs = [epoch(1.0), epoch(1.0)]
    records = [record(SPEC, epochs, 0, startup_s=4.0), record(SPEC, epochs, 1, startup_s=6.5)]

    assert run_figures.startup_s(run_of(ARM, records)).value == 6.5
    silent = run_of(ARM, [records[0], records[1].replace(startup_s=None)])
    assert run_figures.startup_s(silent).reason == "a process did not record it"


def test_target_is_reached_at_the_end_of_the_first_epoch_that_meets_it() -> None:
    """Equal is enough, a later fall does not matter, the chief's clock counts."""
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
    """There is no time, and the reason says why."""
    spec = spec_of("serial")
    low = [epoch(1.0, accuracy=0.1), epoch(1.0, accuracy=0.2)]

    def run(epochs: Sequence[EpochRecord] = low, **changes: Any) -> Run:
        return run_of(arm_of("serial"), [record(spec, epochs, **changes)])

    assert run_figures.time_to_target_s(run()).reason == run_figures.TOO_SHORT  # 2 epochs of 3
    assert run_figures.time_to_target_s(run(epochs=(*low, low[0]))).reason == "not reached"
    assert run_figures.final_quality(run()).reason == run_figures.TOO_SHORT
    more = (*low, low[0], low[1])  # the fourth is timed only
    assert run_figures.final_quality(run(epochs=more)).value == 0.1
    assert run_figures.time_to_target_s(run(quality_target=None)).reason == (
        "the workload has no target"
    )
    assert run_figures.final_quality(run(quality_target=("auc", 0.5))).reason == (
        "no validation metric 'auc'"
    )
    assert run_figures.time_to_target_s(run(is_chief=False)).reason == "no record of the chief"


def test_disagreeing_examples_are_refused_with_run_and_epoch() -> None:
    """Two processes with different counts did not train the same epoch."""
    records = [
        record(SPEC, [epoch(1.0), epoch(1.0, examples=100)], 0),
        record(SPEC, [epoch(1.0), epoch(1.0, examples=99)], 1),
    ]

    with pytest.raises(RefusalError) as refused:
        run_figures.run_figures(run_of(ARM, records, number=1))

    message = str(refused.value)
    assert "the same examples of each epoch" in message
    assert "run 'horovod ×2' of launch 1, epoch 2: rank-0 100, rank-1 99" in message


def test_failed_run_has_no_figures() -> None:
    """Half a run gives no number, whatever its records hold."""
    run = two_ranks([1.0, 1.0], [1.0, 1.0]).replace(outcome={"kind": "failed", "reason": "boom"})

    figures = run_figures.run_figures(run)

    assert figures.keys() == set(run_figures.FIGURES)
    assert {(one.value, one.reason) for one in figures.values()} == {(None, "the run failed")}


def epoch_of(durations: np.ndarray) -> EpochRecord:
    """An epoch of steps that took so long."""
    ends = np.cumsum(durations).tolist()
    return epoch(ends[-1], step_end_s=ends)


def many_steps() -> tuple[Run, np.ndarray]:
    """Two ranks, three epochs of 60 steps with noise; and the durations, [rank, epoch, step]."""
    durations = np.random.default_rng(1).lognormal(-4, 0.2, (2, 3, 60))
    ranks = [
        record(SPEC, [epoch_of(one) for one in own], rank) for rank, own in enumerate(durations)
    ]
    return run_of(ARM, ranks), durations


def test_quantiles_are_those_of_the_slowest_ranks_steps() -> None:
    """Median, p95 and p99 against NumPy, over all steps of the epochs after the first."""
    run, durations = many_steps()
    slowest = 1000 * durations[:, 1:].max(axis=0).ravel()

    figures = run_figures.run_figures(run)

    assert figures["step_time_ms"].value == pytest.approx(np.median(slowest))
    assert figures["step_p95_ms"].value == pytest.approx(np.quantile(slowest, 0.95))
    assert figures["step_p99_ms"].value == pytest.approx(np.quantile(slowest, 0.99))


def test_a_quantile_needs_a_step_beyond_it() -> None:
    """4 steps cannot show what one in twenty takes."""
    figures = run_figures.run_figures(two_ranks([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]))

    assert figures["step_time_ms"].value == pytest.approx(500)
    assert figures["step_p95_ms"].reason == "4 step times: p95 needs 20"
    assert figures["step_p99_ms"].reason == "4 step times: p99 needs 100"


def test_rank_skew_is_the_spread_of_one_step_over_the_ranks() -> None:
    """Largest minus smallest duration in each step, then the median over steps."""
    run, durations = many_steps()
    by_hand = 1000 * np.median(np.abs(durations[0, 1:] - durations[1, 1:]))

    assert run_figures.rank_skew_ms(run).value == pytest.approx(by_hand)
    assert run_figures.rank_skew_ms(parameter_server_run()).reason == (
        "asynchronous: workers make no common steps"
    )
    alone = run_of(arm_of("serial"), [record(spec_of("serial"), [epoch(1.0)] * 3)])
    assert run_figures.rank_skew_ms(alone).reason == "one process"


def test_a_time_of_several_steps_is_divided_by_them() -> None:
    """Executions of 4, 4 and 2 steps in 0.4, 0.8 and 0.1 s: 100, 200 and 50 ms a step."""
    spec = spec_of("serial", steps_per_execution=4)
    one = epoch(1.5, step_end_s=(0.4, 1.2, 1.3), steps=10, steps_per_time=4)
    run = run_of(arm_of("serial"), [record(spec, [one, one])])

    assert step_times_ms(run) == pytest.approx([100, 200, 50])
    assert run_figures.step_quantiles_ms(run)[0].value == pytest.approx(100)


def test_sent_bytes_are_summed_over_hosts_and_interfaces() -> None:
    """Two hosts and two counted epochs of two steps: (100 + 20 + 300) · 2 ÷ 4 bytes for a step."""
    spec = SPEC.replace(topology={"hosts": 2})
    first = epoch(1.0, sent_bytes={"lo": 100, "eth0": 20})
    second = epoch(1.0, sent_bytes={"eth0": 300})
    traced = epoch(9.0, sent_bytes={"eth0": 10**9})

    def run(*of_second: EpochRecord) -> Run:
        ranks = [record(spec, [traced, first, first], 0), record(spec, of_second, 1)]
        return run_of(ARM, ranks, spec=spec)

    assert run_figures.sent_bytes_per_step(run(traced, second, second)).value == 210
    silent = run_figures.sent_bytes_per_step(run(traced, second, epoch(1.0)))
    assert silent.reason == "not recorded on every host"


def test_counted_are_the_epochs_after_warm_up() -> None:
    """Steps are slow until the middle of the second epoch, so two epochs are left out."""
    durations = np.full(300, 0.01)
    durations[:90] = 0.03
    epochs = [epoch_of(one) for one in durations.reshape(5, 60)]
    run = run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])

    assert len(counted_epochs(run)) == 3
    assert run_figures.throughput_examples_s(run).value == pytest.approx(300 / 1.8)
    assert len(step_times_ms(run)) == 180


def test_blocks_of_a_live_run_count_without_their_first_executions() -> None:
    """Three examples an update ÷ the slowest rank's sum; what comes before block 0 is warm-up.

    Rank 1 is late once, which makes it the slowest of no block. Block 2 reaches into the third
    epoch, in which rank 1 is the slowest; all wait between two epochs. Of steps of 60 ms three
    are left out at the beginning of a block.
    """
    run, first = live_run(), LEAST_MARKED
    updates = {0: range(21 + first, 41), 1: range(41 + first, 51), 2: range(51 + first, 91)}
    examples = {number: 3 * len(steps) for number, steps in updates.items()}
    seconds = {
        0: sum(updates[0]) / 1000,
        1: sum(updates[1]) / 1000,
        2: (sum(range(51 + first, 61)) + 1.5 * sum(range(61, 91))) / 1000,
    }

    blocks = counted_blocks(run)

    assert {number: one.steps for number, one in blocks.items()} == {
        number: len(steps) for number, steps in updates.items()
    }
    assert {number: one.examples for number, one in blocks.items()} == pytest.approx(examples)
    assert {number: one.seconds for number, one in blocks.items()} == pytest.approx(seconds)
    assert run_figures.throughput_examples_s(run).value == pytest.approx(
        sum(examples.values()) / sum(seconds.values())
    )
    assert step_times_ms(run) == pytest.approx(
        [100 if k == 48 else k if k <= 60 else 1.5 * k for steps in updates.values() for k in steps]
    )


def test_a_live_run_of_data_without_an_end_has_all_its_figures() -> None:
    """Its only epoch is ended within; none is whole."""
    spec = spec_of("serial")
    ends = (2.0, *(2.0 + 0.01 * np.arange(1, 120)).tolist())
    records = [record(spec, [epoch(ends[-1], step_end_s=ends, examples=360)])]
    blocks = tuple(
        Block(number=k, begun_after=20 + 50 * k, ended_after=70 + 50 * k, wall_s=1.0)
        for k in range(2)
    )

    run = run_of(arm_of("serial"), records, blocks=blocks)

    figures = run_figures.run_figures(run)
    assert figures["throughput_examples_s"].value == pytest.approx(3 / 0.01)
    assert figures["step_time_ms"].value == pytest.approx(10.0)
    assert figures["rank_skew_ms"].reason == "one process"
    assert figures["whole_epochs_examples_s"].value == pytest.approx(360 / ends[-1])


def launched(after_s: tuple[float, float], **changes: Any) -> Run:
    """Two ranks that a launcher started so long after the command; they need 5 s and 3 s more."""
    epochs = [epoch(1.0, end_s=6.0), epoch(1.0, end_s=7.0, accuracy=0.95)]
    records = [
        record(SPEC, epochs, rank, startup_s=own_s, started_unix_s=STARTED_UNIX_S + after)
        for rank, (own_s, after) in enumerate(zip((5.0, 3.0), after_s, strict=True))
    ]
    return run_of(ARM, records, **changes)


def test_start_up_and_target_count_from_the_command_on() -> None:
    """A launcher that works for 4 s before its first rank makes both 4 s longer."""
    run = launched((4.0, 6.5))

    assert run_figures.startup_s(run).value == pytest.approx(max(4.0 + 5.0, 6.5 + 3.0))
    assert run_figures.time_to_target_s(run).value == pytest.approx(4.0 + 7.0)


@pytest.mark.parametrize("changes", [{"started_unix_s": None}, {"boot_id": "boot-2"}])
def test_times_of_two_clocks_are_not_subtracted(changes: dict[str, Any]) -> None:
    """Another machine, or an older file: each process counts from its own start."""
    run = launched((4.0, 6.5), **changes)

    assert run.launch_s(run.records[0]) is None
    assert run_figures.startup_s(run).value == 5.0
    assert run_figures.time_to_target_s(run).value == 7.0


def test_a_process_on_another_machine_does_not_add_its_clock() -> None:
    """Its clock is an hour ahead; the process on the command's machine tells the time."""
    run = launched((4.0, 3600.0))
    run = run.replace(records=(run.records[0], run.records[1].replace(boot_id="boot-2")))

    assert run_figures.startup_s(run).value == pytest.approx(4.0 + 5.0)


def three_processes(**changes: Any) -> Run:
    """Two ranks on one machine and one on another; 3 kB of each are shared pages, of one 4 kB."""
    spec = spec_of("horovod", 3, global_batch=33)
    shared = [(3_000, "boot-1"), (4_000, "boot-1"), (3_000, "boot-2")]
    records = [
        record(
            spec,
            [epoch(1.0), epoch(1.0)],
            rank,
            peak_memory_bytes=10_000,
            shared_memory_bytes=size,
            boot_id=boot_id,
        ).replace(**changes)
        for rank, (size, boot_id) in enumerate(shared)
    ]
    return run_of(arm_of("horovod", 3), records)


def test_pages_that_processes_of_a_machine_share_count_once() -> None:
    """What each has alone, and on each machine the most that one of them shares."""
    run = three_processes()

    alone = (10_000 - 3_000) + (10_000 - 4_000) + (10_000 - 3_000)
    assert run_figures.peak_pss_bytes(run).value == alone + 4_000 + 3_000
    for field in ({"peak_memory_bytes": 0}, {"shared_memory_bytes": None}):
        silent = run_figures.peak_pss_bytes(three_processes(**field))
        assert silent.reason == "a process did not record it"


def test_cpu_time_is_of_what_comes_after_start_up() -> None:
    """Without the import, whatever it takes, and without the examples of the first step."""
    epochs = [epoch(1.0, examples=100), epoch(1.0, examples=100)]

    def run_with(import_s: float | None) -> Run:
        records = [
            record(SPEC, epochs, rank, cpu_s=(import_s or 0) + own_s, startup_cpu_s=import_s)
            for rank, own_s in enumerate((2.0, 2.2))
        ]
        return run_of(ARM, records)

    for import_s in (5.0, 50.0):
        run = run_with(import_s)
        assert run_figures.startup_cpu_s(run).value == 2 * import_s
        per_1000 = run_figures.cpu_s_per_1000_examples(run).value
        assert per_1000 == pytest.approx(1000 * 4.2 / (200 - 32))
    for figure in (run_figures.startup_cpu_s, run_figures.cpu_s_per_1000_examples):
        assert figure(run_with(None)).reason == "a process did not record it"
