"""Runs of a fake train.py to their end, good or bad: the outcome, and that nothing is left."""

import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from launch import Plan, Progress, execute
from ringside_core.specs import Execution, Host
from tests.parallel.launch.conftest import PlanOf
from tests.waiting import wait_until

MembersByName = Callable[[Plan], dict[str, int]]
ARMS: dict[str, dict[str, Any]] = {
    "one process": {"backend": "mirrored"},
    "tf_config": {"backend": "multi_worker_mirrored"},
    "servers": {"backend": "parameter_server"},
    "mpirun": {"backend": "horovod", "launcher": "mpirun"},
    "horovodrun": {"backend": "horovod"},
}


@pytest.mark.parametrize("arm", ARMS)
def test_completed(arm: str, plan_of: PlanOf, capfd: pytest.CaptureFixture[str]) -> None:
    """Every arm completes, with a record of every task, and tells of its progress if it is asked.

    The command is when the first process is started, before any task begins: start-up includes the
    launcher.
    """
    plan = plan_of(**ARMS[arm], steps=5)
    news: list[Progress] = []
    before = time.time()

    execution = execute(plan, deadline_s=20, on_progress=news.append)

    assert execution.outcome.completed, execution
    assert tuple(record.task for record in execution.records) == plan.expects
    training = "chief-0" if arm == "servers" else plan.expects[0]
    steps = [at.step for at in news if at.task == training]
    assert steps == sorted(steps)
    assert steps[-1] == 5
    began = min(record.started_unix_s for record in execution.records)
    assert execution.started_unix_s is not None
    assert before <= execution.started_unix_s <= began
    assert execution.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert capfd.readouterr() == ("", "")


# Kills that leave a record of nothing: who is killed in which arm, and who must be named.
VICTIMS = [
    ("one process", "rank-0", "rank-0"),
    ("tf_config", "worker-1", "worker-1"),
    ("servers", "chief-0", "chief-0"),
    ("servers", "worker-1", "worker-1"),
    ("servers", "ps-0", "ps-0"),
    ("mpirun", "rank-1", "rank-1"),
    ("mpirun", "launcher", "mpirun"),
    ("horovodrun", "rank-1", "rank-1"),
    ("horovodrun", "launcher", "horovodrun"),
]


def killed_on_the_way(
    victim: str, plan: Plan, members_by_name: MembersByName
) -> tuple[Execution, list[float]]:
    """The execution of `plan` when `victim` is killed once a task has ended step 2; when it was."""
    killed_at: list[float] = []

    def kill_at_step_two(progress: Progress) -> None:
        if progress.step >= 2 and not killed_at:
            found = members_by_name(plan)
            if victim in found:
                killed_at.append(time.monotonic())
                os.kill(found[victim], signal.SIGKILL)

    return execute(plan, deadline_s=20, on_progress=kill_at_step_two), killed_at


@pytest.mark.parametrize(("arm", "victim", "named"), VICTIMS)
def test_killed(
    arm: str,
    victim: str,
    named: str,
    plan_of: PlanOf,
    members_by_name: MembersByName,
) -> None:
    """After kill -9 of any one process the run ends soon, and the outcome names who died."""
    execution, killed_at = killed_on_the_way(
        victim, plan_of(**ARMS[arm], steps=30), members_by_name
    )

    assert killed_at
    assert time.monotonic() - killed_at[0] < 9
    assert (execution.outcome.kind, execution.outcome.error_class) == ("failed", "ProcessDied")
    assert execution.outcome.reason.startswith(named)
    assert "SIGKILL" in execution.outcome.reason


def test_peers_that_go_on_are_ended(
    plan_of: PlanOf,
    members_by_name: MembersByName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that does not notice the death, and would train for ever, is ended after a grace."""
    monkeypatch.setattr(sys.modules[execute.__module__], "REPORT_GRACE_S", 0.3)
    plan = plan_of("multi_worker_mirrored", steps=1000)

    execution, _ = killed_on_the_way("worker-0", plan, members_by_name)

    assert execution.outcome.reason.startswith("worker-0 was killed by SIGKILL ")
    assert execution.wall_s < 10


def test_a_killed_middleman(plan_of: PlanOf, members_by_name: MembersByName) -> None:
    """Without the process between horovodrun and a rank the run ends, one way or the other.

    horovodrun waits for the orphan's output to end, so the training may well complete.
    """
    execution, killed_at = killed_on_the_way(
        "middleman", plan_of("horovod", steps=15), members_by_name
    )

    assert killed_at
    assert execution.outcome.completed or execution.outcome.error_class == "ProcessDied"


def test_a_long_log_is_cut_while_the_run_goes_on(
    plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task notices nothing; its last words are kept."""
    for name, value in (("MOST_BYTES", 20_000), ("KEPT_BYTES", 1000), ("LOOK_S", 0.0)):
        monkeypatch.setattr(f"launch.logs.{name}", value)
    plan = plan_of("mirrored", who="rank-0", what="talk", steps=4)

    execution = execute(plan, deadline_s=20)

    text = (Path(plan.run_dir) / "logs" / "rank-0.log").read_text()
    assert execution.outcome.completed, execution
    assert text.startswith("hello from rank-0\n") and "bytes are left out here]" in text
    assert text.endswith(" and on\n") and len(text) < 3000


@pytest.mark.parametrize("arm", ["tf_config", "mpirun", "horovodrun"])
def test_an_exception(arm: str, plan_of: PlanOf) -> None:
    """An exception in one task is the outcome of the run, whatever the others report."""
    task = "worker-1" if arm == "tf_config" else "rank-1"
    plan = plan_of(**ARMS[arm], who=task, what="raise")

    execution = execute(plan, deadline_s=20)

    assert str(execution.outcome) == f"failed(ValueError: {task}: a bad batch)"
    assert execution.failing_task == task
    assert execution.last_lines[-1] == f"{task} does what it was asked: raise"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("exit 0", "worker-1 exited with code 0 after step 2, without a record; last lines: "),
        ("exit 3", "worker-1 exited with code 3 after step 2, without a record; last lines: "),
        ("hide a child", "worker-1 exited with code 3 after step 2, without a record"),
        ("half a record", "worker-1 exited with code 1 after step 2, without a record"),
        ("leave a temporary file", "worker-1 exited with code 1 after step 2, without a record"),
    ],
)
def test_an_end_without_a_record(what: str, reason: str, plan_of: PlanOf) -> None:
    """A task that ends without a whole record fails the run; what it left is swept."""
    plan = plan_of("multi_worker_mirrored", who="worker-1", what=what, steps=10)

    execution = execute(plan, deadline_s=20)

    if what == "half a record":
        assert execution.outcome.reason.startswith("the record of worker-1 cannot be read: ")
    else:
        assert execution.outcome.reason.startswith(reason)
    assert [record.task for record in execution.records] == ["worker-0"]


@pytest.mark.parametrize(
    ("arm", "task", "what"),
    [
        ("one process", "rank-0", "sleep"),
        ("tf_config", "worker-1", "be deaf"),
        ("mpirun", "rank-1", "be deaf"),
        ("horovodrun", "rank-1", "freeze"),
    ],
)
def test_hung(arm: str, task: str, what: str, plan_of: PlanOf) -> None:
    """A task without progress ends the run after the deadline, though its peers go on."""
    plan = plan_of(**ARMS[arm], who=task, what=what, steps=100)
    stood_at: list[float] = []

    def note_step_two(progress: Progress) -> None:
        if progress.task == task and progress.step == 2:
            stood_at.append(time.monotonic())

    execution = execute(plan, deadline_s=2.0, on_progress=note_step_two)

    assert str(execution.outcome) == (
        f"hung(2 s): no progress for 2 s: {task} was training, step 2 of 100"
    )
    assert time.monotonic() - stood_at[0] < 9


def test_the_guard_is_renewed(plan_of: PlanOf, guards_of: Callable[[Plan], list[int]]) -> None:
    """Someone who kills the guard, which does not train, harms no task."""
    plan = plan_of("mirrored", steps=20)
    guards: list[int] = []

    def kill_the_guard(progress: Progress) -> None:
        now = guards_of(plan)
        if progress.step >= 2 and now and now[0] not in guards:
            guards.append(now[0])
            if len(guards) == 1:
                os.kill(now[0], signal.SIGKILL)

    execution = execute(plan, deadline_s=20, on_progress=kill_the_guard)

    assert execution.outcome.completed
    assert len(guards) == 2


def test_what_is_said_live(plan_of: PlanOf, capfd: pytest.CaptureFixture[str]) -> None:
    """On request the output of every task is shown as it comes; each has its own file anyway."""
    plan = plan_of("multi_worker_mirrored", steps=3)

    execute(plan, live=True)

    shown = capfd.readouterr().out.splitlines()
    assert sorted(shown) == ["[worker-0] hello from worker-0", "[worker-1] hello from worker-1"]
    for task in plan.expects:
        log = Path(plan.run_dir, "logs", f"{task}.log")
        assert log.read_text() == f"hello from {task}\n"


def test_a_late_server_does_not_hear_before_it_listens(plan_of: PlanOf) -> None:
    """A server that comes up when all is over is asked to stop then, and records."""
    plan = plan_of("parameter_server", steps=1, who="ps-0", what="come late")

    execution = execute(plan, deadline_s=20)

    assert execution.outcome.completed, execution


def test_an_error_in_on_progress_ends_the_run(plan_of: PlanOf) -> None:
    """An exception of the caller's own leaves no process either."""
    plan = plan_of("multi_worker_mirrored", steps=100)

    def fail(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        execute(plan, on_progress=fail)


def refused(plan: Plan) -> str:
    """Execute a plan that must be refused; returns the reason."""
    execution: Execution = execute(plan)
    assert execution.outcome.kind == "refused"
    return execution.outcome.reason


def test_a_folder_holds_one_run(plan_of: PlanOf) -> None:
    """Records of two runs are never mixed."""
    plan = plan_of("serial", replicas=1, steps=1)
    execute(plan)

    reason = refused(plan)

    assert reason == f"{plan.run_dir} holds a run already; every run needs a folder of its own."


def test_two_launches_into_one_folder(plan_of: PlanOf) -> None:
    """The second finds the folder taken, however early it comes: no spec and record are mixed."""
    first = plan_of("serial", replicas=1, steps=5)
    spec = first.spec.replace(seed=first.spec.seed + 1)
    second = first.replace(spec=spec, run_id=secrets.token_hex(8))

    with ThreadPoolExecutor() as pool:
        running = pool.submit(execute, first)
        wait_until((Path(first.run_dir) / "spec.json").exists)
        reason = refused(second)

    assert reason == f"{first.run_dir} holds a run already; every run needs a folder of its own."
    assert running.result().outcome.completed, running.result()
    assert [record.spec for record in running.result().records] == [first.spec]


def test_the_record_of_another_run_is_refused(plan_of: PlanOf) -> None:
    """A folder may be emptied while processes of an earlier run still write into it."""
    plan = plan_of("serial", replicas=1, who="rank-0", what="be of another run", steps=5)

    execution = execute(plan, deadline_s=20)

    assert execution.outcome.kind == "failed"
    assert execution.outcome.reason == (
        "the record of rank-0 cannot be read: it is of another run (0ther)"
    )
    assert execution.records == ()


def test_a_taken_port_is_refused(plan_of: PlanOf) -> None:
    """Somebody who took a port between plan and execution is found before anything starts."""
    plan = plan_of("multi_worker_mirrored")
    assert plan.cluster is not None
    port = int(plan.cluster.worker[1].rpartition(":")[2])

    with socket.create_server(("127.0.0.1", port)):
        reason = refused(plan)

    assert reason == (
        f"This machine is not ready: port {port} is taken: "
        "wait, or repeat (the next run takes others)."
    )
    assert not Path(plan.run_dir).exists()


def test_a_missing_program_is_refused(plan_of: PlanOf) -> None:
    """A launcher that is not installed is named."""
    plan = plan_of("horovod", launcher="mpirun")
    process = plan.processes[0].replace(argv=("no-such-mpirun",))

    reason = refused(plan.replace(processes=(process,)))

    assert reason == "no-such-mpirun is not installed. `ringside doctor` shows what is installed."


# ssh and sshd in one: over there is a new session, with none of our environment but ours to end by
# closing its input.
FAKE_SSH = f"""#!{sys.executable}
import os, subprocess, sys, threading
host, command = sys.argv[-2:]
if host == "nowhere":
    sys.exit("ssh: Could not resolve hostname nowhere")
there = subprocess.Popen(
    ["sh", "-c", command], stdin=subprocess.PIPE, env={{"PATH": os.environ["PATH"]}},
    start_new_session=True,
)
def pass_on():
    while said := os.read(0, 4096):
        os.write(there.stdin.fileno(), said)
    there.stdin.close()
threading.Thread(target=pass_on, daemon=True).start()
code = there.wait()
os._exit(code)
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host but this one is reached by a fake ssh, and is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(FAKE_SSH)
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("backend", ["multi_worker_mirrored", "parameter_server"])
def test_tasks_on_another_machine(backend: str, plan_of: PlanOf) -> None:
    """Tasks over ssh complete; servers over there are asked to stop by the end of their input."""
    hosts = (Host(name="localhost.", slots=2),)
    plan = plan_of(backend, hosts=hosts, steps=5)

    execution = execute(plan, deadline_s=20)

    assert plan.remote_hosts == ("localhost.",)
    assert execution.outcome.completed, execution
    assert tuple(record.task for record in execution.records) == plan.expects


@pytest.mark.usefixtures("ssh")
def test_a_killed_ssh(plan_of: PlanOf, members_by_name: MembersByName) -> None:
    """When the connection to a task is cut, the task over there ends too."""
    plan = plan_of("multi_worker_mirrored", hosts=(Host(name="localhost.", slots=2),), steps=30)
    killed: list[str] = []

    def kill_at_step_two(progress: Progress) -> None:
        if progress.task == "worker-1" and progress.step >= 2 and not killed:
            killed.append(plan.processes[1].name)
            os.kill(members_by_name(plan)["worker-1"], signal.SIGKILL)

    execution = execute(plan, deadline_s=20, on_progress=kill_at_step_two)

    assert execution.outcome.reason.startswith("worker-1 was killed by SIGKILL after step ")


@pytest.mark.usefixtures("ssh")
def test_a_machine_that_cannot_be_reached(plan_of: PlanOf) -> None:
    """A host without an answer is named before anything is started."""
    plan = plan_of("multi_worker_mirrored", hosts=(Host(name="nowhere", slots=2),))

    assert refused(plan) == "nowhere is not ready: its name is not known here."
    assert not Path(plan.run_dir).exists()
