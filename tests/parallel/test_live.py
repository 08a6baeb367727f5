"""Live launches: real stacks are frozen and thawed, and no process is left when one dies."""

import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from launch import execute, make_plan
from launch.turns import Turns
from ringside.stats.summary import summarize
from tests.parallel.typed import LIMIT_S, ended, left_of, results, started
from tests.unit.stats.factory import spec_of
from tests.waiting import wait_until

FOLDER = "runs/bout"
HEARTBEAT_S = 13  # the coordination service of TensorFlow gives a silent peer up after 10 to 12
STACKS = "multi_worker_mirrored,parameter_server,horovod,horovod:controller=mpi"
pytestmark = [
    pytest.mark.timeout(LIMIT_S + 60),
    pytest.mark.usefixtures("signals_heard", "quick_horovodrun"),
]


def compare(tmp_path: Path, *flags: str) -> "subprocess.Popen[str]":
    """Two replicas, without certificates, and only the screening if the flags do not say more."""
    counted = () if "--launches" in flags else ("--launches", "0")
    return started(
        tmp_path,
        *("--workload", "digits", "--replicas", "2", "--no-verify", *counted),
        *("--epochs", "6", "--name", "bout", *flags),
    )


def frozen_rank(tmp_path: Path, process: "subprocess.Popen[str]") -> psutil.Process:
    """A rank of a Horovod arm that is frozen while another arm is started or has its turn."""
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        assert process.poll() is None, process.communicate()[0]
        for one in left_of(tmp_path / FOLDER):
            try:
                words = one.cmdline()
                stopped = one.status() == psutil.STATUS_STOPPED
            except psutil.Error:
                continue
            if stopped and "python" in words[0] and "horovod-x2" in " ".join(words):
                return one
        time.sleep(0.05)
    raise AssertionError("no rank was frozen")


def test_the_final_has_launches_of_its_own(tmp_path: Path) -> None:
    """As the screening, it starts all at once: what was started first would be slower."""
    flags = ("--backends", "one_device,mirrored", "--launches", "1", "--budget", "20s")
    code, said = ended(compare(tmp_path, *flags))

    assert code == 0, said
    comparison = results(tmp_path / FOLDER)
    assert comparison.finalists == ("serial ×1", "mirrored ×2")
    made = {(run.arm, run.round): run for run in comparison.runs}
    assert len(made) == len({run.log_dir for run in comparison.runs}) == 3 + 2
    began = {key: run.started_unix_s or 0.0 for key, run in made.items()}
    screened = [at for (_, number), at in began.items() if number == 0]
    final = [at for (_, number), at in began.items() if number == 1]
    assert min(final) > max(screened)
    assert max(final) - min(final) < 1
    assert max(screened) - min(screened) < 1
    alone = {arm: run.alone_start_s for (arm, number), run in made.items() if not number}
    assert all(alone.values())  # of processes that are started before, and have ended
    rows = {row.arm.label: row for row in summarize(comparison).arms}
    assert {label: row.spreads["startup_s"].value for label, row in rows.items()} == alone
    for run in made.values():
        assert run.wall_s >= sum(block.wall_s for block in run.blocks) > 0
    assert {row.same_rows for row in summarize(comparison).runs} == {"yes"}


def test_where_nothing_is_to_be_chosen_the_final_begins_at_once(tmp_path: Path) -> None:
    """Its first launch divides the time of the others, and starts were timed before."""
    flags = ("--backends", "mirrored", "--launches", "2", "--budget", "30s")
    code, said = ended(compare(tmp_path, *flags))

    assert code == 0, said
    assert "2 arms, each started once, then the final of all of them" in said
    comparison = results(tmp_path / FOLDER)
    summary = summarize(comparison)
    assert (summary.launches.first, summary.launches.final) == (1, (1, 2))
    assert {(run.arm, run.round) for run in comparison.runs} == {
        (label, number) for label in ("serial ×1", "mirrored ×2") for number in (1, 2)
    }
    alone = {run.arm: run.alone_start_s for run in comparison.runs if run.round == 1}
    assert all(alone.values())
    rows = {row.arm.label: row for row in summary.arms}
    assert {label: row.spreads["startup_s"].value for label, row in rows.items()} == alone
    assert comparison.division is not None
    assert comparison.division.launches == 2
    assert comparison.ended_because == "All 2 launches of the final were made."


@pytest.mark.nightly
def test_a_contender_that_dies_in_the_final(tmp_path: Path) -> None:
    """It leaves the final, and keeps its row of the screening."""
    flags = ("--backends", "one_device,mirrored,horovod", "--launches", "1", "--budget", "90s")
    process = compare(tmp_path, *flags)
    assert process.stdout is not None
    said = ""
    while "Final:" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line

    frozen_rank(tmp_path, process).send_signal(signal.SIGKILL)
    code, said = ended(process)

    assert code == 1, said
    comparison = results(tmp_path / FOLDER)
    assert comparison.notes == ("horovod ×2 failed in launch 1 of the final.",)
    assert {(run.arm, run.round, run.outcome.completed) for run in comparison.runs} == {
        *((label, 0, True) for label in ("one_device ×1", "horovod ×2")),
        ("horovod ×2", 1, False),
        *((label, number, True) for label in ("serial ×1", "mirrored ×2") for number in (0, 1)),
    }
    assert "7 runs, 1 failed" in said
    assert left_of(tmp_path / FOLDER) == []


@pytest.mark.nightly
def test_every_stack_takes_turns(tmp_path: Path) -> None:
    """All complete. Each has a block in every pass, and ends behind the same update."""
    code, said = ended(compare(tmp_path, "--backends", STACKS))

    assert code == 0, said
    comparison = results(tmp_path / FOLDER)
    assert comparison.live
    assert len(comparison.runs) == len(comparison.arms_of(0)) == 5
    (passes,) = {tuple(block.number for block in run.blocks) for run in comparison.runs}
    assert passes == tuple(range(len(passes)))
    assert len(passes) >= 3
    for run in comparison.runs:
        chief = next(record for record in run.records if record.is_chief)
        made = sum(epoch.steps for epoch in chief.epochs)
        assert made == run.blocks[-1].ended_after
        assert all(
            one.ended_after == other.begun_after
            for one, other in zip(run.blocks, run.blocks[1:], strict=False)
        )
        assert sum(epoch.paused_s for epoch in chief.epochs) > 0
        assert all(block.others_cpu_s is not None for block in run.blocks)


def test_an_arm_that_dies_while_it_is_frozen(tmp_path: Path) -> None:
    """It has failed, by its name; the others go on."""
    process = compare(tmp_path, "--backends", "horovod")
    rank = frozen_rank(tmp_path, process)
    arm = "horovod ×2"

    rank.send_signal(signal.SIGKILL)
    code, said = ended(process)

    assert code == 1, said
    outcomes = {run.arm: run.outcome for run in results(tmp_path / FOLDER).runs}
    died = outcomes.pop(arm)
    assert died.kind == "failed"
    assert "SIGKILL" in died.reason
    assert all(one.completed for one in outcomes.values()), outcomes
    wait_until(lambda: not left_of(tmp_path / FOLDER))


def test_an_arm_that_cannot_start(tmp_path: Path) -> None:
    """It has failed once; the others are screened. The data of digits are arrays."""
    code, said = ended(compare(tmp_path, "--backends", "serial,serial:input=cache"))

    assert code == 1, said
    runs = results(tmp_path / FOLDER).runs
    outcomes = {run.arm: run.outcome.completed for run in runs}
    assert outcomes == {"serial ×1": True, "serial:input=cache ×1": False}
    assert [run.position for run in runs] == [0, 1]
    assert "needs a tf.data.Dataset" in said


@pytest.mark.nightly
def test_killed_while_arms_are_frozen(tmp_path: Path) -> None:
    """No process is left, frozen or not; test_compare.py asks what Ctrl-C says."""
    process = compare(tmp_path, "--backends", "horovod")
    frozen_rank(tmp_path, process)

    process.kill()

    wait_until(lambda: not left_of(tmp_path / FOLDER))
    assert (found := ended(process))[0] == -signal.SIGKILL, found


@pytest.mark.nightly
def test_frozen_longer_than_a_heartbeat_and_nothing_changes(tmp_path: Path) -> None:
    """The weights at the end are those of the same run that was never frozen, to the last bit."""
    spec = spec_of("multi_worker_mirrored", 2, global_batch=96, epochs=2, save="record")
    plain = execute(make_plan(spec, run_dir=tmp_path / "plain"))
    turns = Turns(make_plan(spec, run_dir=tmp_path / "frozen"))
    turns.allow(5)
    found = []

    def whole() -> None:
        found.append(execute(turns.plan, turns=turns))
        turns.over = True

    thread = threading.Thread(target=whole)
    thread.start()
    assert turns.run_until(5, lambda: None) == 5
    time.sleep(HEARTBEAT_S)
    assert turns.run_until(float("inf"), lambda: None) == 0
    thread.join()

    (frozen,) = found
    assert frozen.outcome.completed, frozen.outcome
    assert [one.final_digest for one in frozen.records] == [
        one.final_digest for one in plain.records
    ]
    first = frozen.records[0].epochs[0]
    assert first.paused_s > HEARTBEAT_S
    assert first.train_s < HEARTBEAT_S
