"""One outcome from what is left of a run: which of several bad signs is the cause."""

import os
import subprocess
from pathlib import Path

import pytest

from launch import Plan, Process, Progress
from launch.children import Child
from launch.outcome import Evidence, Records, Verdict, judge
from ringside_core.specs import Outcome
from tests.unit.launch.conftest import PlanOf
from tests.unit.stats.factory import COMPLETED, record

BAD_BATCH = Outcome(kind="failed", error_class="ValueError", reason="a bad batch")
LOST_PEER = Outcome(kind="failed", error_class="UnavailableError", reason="Socket closed")

GLOO_OUTPUT = """\
[1]<stderr>:Killed
Process 1 exit with status code 137.
Terminating remaining workers after failure of Process 1.
[0]<stderr>:Terminated
Process 0 exit with status code 143.
"""
MPIRUN_SIGNAL = """\
mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).
"""
MPIRUN_CODE = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[29510,1],1]
  Exit code:    3
"""


class Scene:
    """A run's folder, filled by hand."""

    def __init__(self, plan: Plan, run_dir: Path) -> None:
        self.plan = plan.replace(run_dir=str(run_dir))
        self.run_dir = run_dir
        self.evidence = Evidence()
        for folder in ("records", "logs"):
            (run_dir / folder).mkdir()

    def record(self, task: str, outcome: Outcome, *, second: int = 0) -> None:
        """A record that a task wrote at some second."""
        file = self.run_dir / "records" / f"{task}.json"
        file.write_text(
            record(
                self.plan.spec, (), task=task, outcome=outcome, run_id=self.plan.run_id
            ).to_json()
        )
        os.utime(file, (second, second))

    def exited(self, name: str, code: int, program: str = "python") -> None:
        """A process that ended by itself."""
        popen = subprocess.Popen(["true"])
        popen.wait()
        popen.returncode = code
        process = Process(name=name, argv=(program,))
        self.evidence.exits.append(Child(process, popen, handle=-1, exited=1.0))

    def log(self, name: str, text: str) -> None:
        """What a process said."""
        (self.run_dir / "logs" / f"{name}.log").write_text(text)

    def at(self, task: str, step: int) -> None:
        """How far a task was."""
        self.evidence.progress[task] = Progress(
            task=task, step=step, total_steps=40, phase="training"
        )

    def judge(self) -> Verdict:
        """The verdict."""
        records = Records(self.plan)
        records.look()
        return judge(self.plan, records, self.evidence)


@pytest.fixture
def workers(plan_of: PlanOf, tmp_path: Path) -> Scene:
    """Two workers of multi_worker_mirrored."""
    return Scene(plan_of("multi_worker_mirrored"), tmp_path)


@pytest.fixture
def ranks(plan_of: PlanOf, tmp_path: Path) -> Scene:
    """Two ranks of Horovod."""
    return Scene(plan_of("horovod"), tmp_path)


def test_an_exit_code_after_a_complete_record_changes_nothing(workers: Scene) -> None:
    """A crash while the interpreter shuts down does not change what was recorded."""
    workers.record("worker-0", COMPLETED)
    workers.record("worker-1", COMPLETED)
    workers.exited("worker-1", -11)

    assert workers.judge().outcome == COMPLETED


def test_a_users_error_is_reported_and_not_what_its_peer_made_of_it(workers: Scene) -> None:
    """The model's exception is the cause, even if a peer first reported a lost connection."""
    workers.record("worker-0", LOST_PEER, second=1)
    workers.record("worker-1", BAD_BATCH, second=2)
    workers.exited("worker-0", 1)

    verdict = workers.judge()

    assert str(verdict.outcome) == "failed(ValueError: worker-1: a bad batch)"
    assert verdict.task == "worker-1"


def test_a_refusal_stays_a_refusal(workers: Scene) -> None:
    """A task that refused makes the run refused."""
    workers.record("worker-0", Outcome(kind="refused", reason="no such data"))

    assert str(workers.judge().outcome) == "refused(worker-0: no such data)"


def test_a_killed_worker_is_named_with_its_step_and_last_lines(workers: Scene) -> None:
    """A death without a record counts more than what peers say about connections."""
    workers.record("worker-0", LOST_PEER)
    workers.exited("worker-1", -9)
    workers.exited("worker-0", 1)
    workers.at("worker-1", 12)
    workers.log("worker-1", "one\ntwo\n\nthree\nfour\n")

    outcome = workers.judge().outcome

    assert (outcome.kind, outcome.error_class) == ("failed", "ProcessDied")
    assert outcome.reason == (
        "worker-1 was killed by SIGKILL after step 12; last lines: two | three | four"
    )


def test_hung(workers: Scene) -> None:
    """The message names the task that stood still, its phase, and for how long."""
    workers.evidence.still = [
        Progress(task="worker-1", step=3, total_steps=40, phase="training"),
        Progress(task="worker-0"),
    ]
    workers.evidence.still_s = 20

    assert str(workers.judge().outcome) == (
        "hung(20 s): no progress for 20 s: worker-1 was training, step 3 of 40; "
        "worker-0 was never heard of"
    )


@pytest.mark.parametrize(
    ("output", "code", "reason"),
    [
        (GLOO_OUTPUT, 1, "rank-1 was killed by SIGKILL after step 7"),
        (MPIRUN_SIGNAL, 137, "rank-1 was killed by SIGKILL after step 7"),
        (MPIRUN_CODE, 3, "rank-1 exited with code 3 after step 7, without a record"),
    ],
    ids=["gloo", "mpirun signal", "mpirun code"],
)
def test_a_rank_that_died_is_found_in_its_launchers_output(
    output: str, code: int, reason: str, ranks: Scene
) -> None:
    """Ranks are not our children; horovodrun and mpirun say which one ended first."""
    ranks.log("launcher", output)
    ranks.exited("launcher", code, "horovodrun")
    ranks.at("rank-0", 6)
    ranks.at("rank-1", 7)

    assert ranks.judge().outcome.reason == reason


def test_a_rank_that_was_ended_for_another_is_not_blamed(ranks: Scene) -> None:
    """A rank that the launcher ended is not the cause, even if it ended first."""
    ranks.log(
        "launcher", "Process 0 exit with status code 143.\nProcess 1 exit with status code 137.\n"
    )
    ranks.exited("launcher", 1, "horovodrun")

    assert ranks.judge().outcome.reason == "rank-1 was killed by SIGKILL before the first step"


def test_a_launcher_that_gives_up_on_a_rank_that_completed(ranks: Scene) -> None:
    """A completed rank is not the cause; then the launcher itself is named."""
    ranks.record("rank-1", COMPLETED)
    ranks.log("launcher", "Process 1 exit with status code -9.\n")
    ranks.exited("launcher", 1, "horovodrun")

    assert ranks.judge().outcome.reason == (
        "horovodrun exited with code 1 before the first step; "
        "last lines: Process 1 exit with status code -9."
    )


def test_survivors(workers: Scene) -> None:
    """A process that cannot be killed spoils even a complete run: it would disturb the next."""
    workers.record("worker-0", COMPLETED)
    workers.record("worker-1", COMPLETED)
    workers.evidence.survivors = ["17", "b"]

    assert workers.judge().outcome.reason == "processes cannot be killed: 17, b"
