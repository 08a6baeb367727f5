"""What a report says of a comparison: findings, caveats, failures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside.report.blocks import Heading, Output
from ringside.report.sections.caveats import caveats
from ringside.report.sections.failures import failures_section
from ringside.report.sections.tables import results_table
from ringside.report.view import view_of
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison, Run
from tests.unit.report.bout import bout
from tests.unit.report.proofs import verified, without_backend
from tests.unit.report.small import small
from tests.unit.report.views import section_of
from tests.unit.stats.factory import (
    FAILED,
    MACHINE,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)


def caveats_of(runs: list[Run], **changes: Any) -> str:
    """All caveats of a comparison of these runs, as one text."""
    labels = dict.fromkeys((run.spec.backend, run.spec.topology.num_replicas) for run in runs)
    comparison = comparison_of([arm_of(*label) for label in labels], runs, **changes)
    return words_of(comparison)


def words_of(comparison: Comparison) -> str:
    """Caveats and what to do about them, as one text."""
    return "\n".join(
        f"{one.what} {one.advice}" for one in caveats(comparison, summarize(comparison))
    )


def one_run(
    backend: str, replicas: int = 1, /, *, spec: dict[str, Any] | None = None, **changes: Any
) -> Run:
    """A run of two epochs whose spec and records differ from the usual in this."""
    made = spec_of(backend, replicas, **(spec or {}))
    records = [
        record(made, [epoch(1.0), epoch(1.0)], rank, **changes)
        for rank in range(made.topology.num_processes)
    ]
    return run_of(arm_of(backend, replicas), records)


def test_median_time_to_target_needs_every_run() -> None:
    """A median over only the runs that reached it would flatter the arm."""
    spec = spec_of("serial")
    runs = [
        run_of(
            arm_of("serial"),
            [record(spec, [epoch(1.0), epoch(1.0), epoch(1.0, accuracy=accuracy)])],
            number=number,
            position=number,
        )
        for number, accuracy in enumerate((0.95, 0.5, 0.96))
    ]

    comparison = comparison_of([arm_of("serial")], runs)
    view = view_of(comparison)

    cell = results_table(view.summary).rows[0][6]
    assert (cell.main, cell.note) == ("–", "2 of 3 reached it")
    section = str(section_of(view, "accuracy").blocks[0])
    assert "The target, accuracy ≥ 0.9, was reached in 2 of 3 completed runs." in section
    assert "was not always reached: serial (2 of 3 runs)" in words_of(comparison)


def test_a_launcher_that_is_left_out_is_a_caveat() -> None:
    """The chief ran on a machine with another clock, or the file does not say when it began."""
    run = one_run("horovod", 2)
    elsewhere = one_run("horovod", 2, boot_id="boot-2")
    left_out = "Start-up and time to target of horovod ×2 leave out the launcher"

    assert left_out not in caveats_of([run])
    assert left_out in caveats_of([elsewhere])
    assert left_out in caveats_of([run.replace(started_unix_s=None)])


def test_epochs_in_another_order_than_steps_are_a_caveat() -> None:
    """Mirrored makes faster steps and pays for each epoch's end; only a pair that differs."""

    def caveats_with(between_s: float, noise: float) -> str:
        random = np.random.default_rng(3)
        runs: list[Run] = []
        both = [("mirrored", 1.0, between_s), ("horovod", 1.2, 0.0)]
        for number in range(6):
            for backend, train_s, beside_s in both[:: -1 if number % 2 else 1]:
                train_s *= random.lognormal(0, noise)
                one = simple_run(backend, 2, train_s, number=number)
                epochs = [e.replace(beside_s=beside_s) for e in one.records[0].epochs]
                records = [record.replace(epochs=epochs) for record in one.records]
                runs.append(one.replace(records=records, position=len(runs)))
        arms = [arm_of("mirrored", 2), arm_of("horovod", 2)]
        return words_of(verified(comparison_of(arms, runs)))

    assert "changes the order" not in caveats_with(0.1, 1e-5)
    assert (
        "mirrored ×2 is faster than horovod ×2, and over whole epochs slower (66.7 and 83.3 "
        "examples/s)" in caveats_with(0.5, 1e-5)
    )
    assert "changes the order" not in caveats_with(0.5, 0.5)


def test_lost_runs_are_a_caveat() -> None:
    """How many of how many, how they ended, in which launch; also if none is left."""
    runs = [simple_run("serial", 1, 1.0, number=k, position=k) for k in range(3)]
    lost = [*runs[:2], runs[2].replace(outcome=FAILED)]

    assert (
        "serial: 1 of 3 runs did not complete (failed in launch 3). Its numbers come from 2 "
        "completed runs." in caveats_of(lost)
    )
    assert "serial: no run completed (failed in the screening)" in caveats_of(
        [runs[0].replace(outcome=FAILED)]
    )


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (one_run("horovod", 4), "horovod ×4 (4 replicas on 2 cores)"),
        (
            one_run("mirrored", 2, cores=(0, 1), spec={"resources": {"cores_per_replica": 2}}),
            "mirrored ×2 (2 replicas × 2 on 2 cores)",
        ),
        (
            one_run("horovod", 2, cores=(0, 1), spec={"resources": {}}),
            "horovod ×2 (not pinned: 2 processes, each free on 2 cores)",
        ),
    ],
)
def test_over_subscription_is_a_caveat(run: Run, words: str) -> None:
    """More is asked of the machine than it has, in any process model."""
    assert words in caveats_of([run])


def test_cores_of_two_hosts_are_added() -> None:
    """Core 0 of one machine is not core 0 of another."""
    run = one_run("horovod", 2)
    records = [
        run.records[0],
        run.records[1].replace(cores=(0,), machine=MACHINE.replace(host="bench-2")),
    ]

    text = caveats_of([run.replace(records=tuple(records))])

    assert "More replicas or processes than cores" not in text
    assert "2 hosts: bench-1 and bench-2" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": "3.11.2"}, "differ in their versions of Python"),
        ({"packages": {}}, "differ in their package versions"),
        ({"cpu_model": "Slow CPU"}, "differ in their processors"),
    ],
)
def test_unlike_machines_are_a_caveat(changes: dict[str, Any], words: str) -> None:
    """For two hosts of one run; on one host they are refused."""
    run = one_run("horovod", 2)
    other = MACHINE.replace(host="bench-2", **changes)
    records = (run.records[0], run.records[1].replace(machine=other))

    assert words in caveats_of([run.replace(records=records)])


def test_unequal_threads_of_either_kind_are_a_caveat() -> None:
    """Both thread pools count for each replica."""
    resources = {"cores_per_replica": 1, "intra_op_threads": 1, "inter_op_threads": 1}
    wide = {**resources, "intra_op_threads": 2, "inter_op_threads": 2}

    def text(mirrored: dict[str, int]) -> str:
        shared = one_run("mirrored", 2, cores=(0, 1), spec={"resources": mirrored})
        return caveats_of([one_run("serial"), shared.replace(position=1)])

    assert "number of TensorFlow's threads" not in text(wide)
    assert "number of TensorFlow's threads" in text({**wide, "inter_op_threads": 1})
    assert "number of TensorFlow's threads" in text({**wide, "intra_op_threads": 1})


def test_a_clean_comparison_has_no_caveat() -> None:
    """Caveats are computed, so there may be none."""
    clean = without_backend(small(), "mirrored").replace(ended_because="All launches were made.")

    assert words_of(clean) == ""


# Failures


def failing(log_dir: str = "runs/000") -> Comparison:
    """One run that failed without a record."""
    run = run_of(arm_of("serial"), [], outcome=FAILED, log_dir=log_dir)
    return comparison_of([arm_of("serial")], [run])


def test_failure_shows_the_traceback_of_the_process_that_failed() -> None:
    """The failed rank's record says more than the run's outcome."""
    (section,) = failures_section(bout(), None)
    heading, _, output = section.blocks

    assert heading == Heading("horovod:controller=mpi ×2, launch 2")
    assert isinstance(output, Output)
    assert [task for task, _ in output.lines] == ["rank-1"]
    assert output.lines[0][1].splitlines()[-1].startswith("horovod.common.exceptions")


def test_failure_without_a_record_shows_the_end_of_the_logs(tmp_path: Path) -> None:
    """The last lines of every process, without control characters."""
    logs = tmp_path / "runs" / "000" / "logs"
    logs.mkdir(parents=True)
    (logs / "rank-0.log").write_bytes(b"".join(b"line %d\n" % n for n in range(50)) + b"\xff\x1b[m")
    (logs / "rank-1.log").write_text("")

    (section,) = failures_section(failing(), tmp_path)
    *_, output = section.blocks

    assert isinstance(output, Output)
    assert output.link == "runs/000"
    ((task, lines),) = output.lines
    assert task == "rank-0"
    assert lines.splitlines()[0] == "line 39"
    assert lines.splitlines()[-1] == "�"


@pytest.mark.parametrize("log_dir", ["../secret", "/etc", "", "runs/../../secret"])
def test_logs_outside_of_the_folder_are_not_read(tmp_path: Path, log_dir: str) -> None:
    """A record cannot make a report show or link a file from elsewhere."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x.log").write_text("secret")
    (tmp_path / "report").mkdir()

    (section,) = failures_section(failing(log_dir=log_dir), tmp_path / "report")

    assert not any(isinstance(block, Output) for block in section.blocks)
