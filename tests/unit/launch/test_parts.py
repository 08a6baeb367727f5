"""The small parts: progress, logs, environment, checks of hosts."""

import io
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launch.children import Children, environment
from launch.logs import Follower
from launch.plan import LAUNCHER_NAME, Process
from launch.remote.host_facts import obstacles
from launch.remote.sweep import tidy
from launch.watch import Progress, Watch
from ringside_core.specs import RunRecord
from tests.unit.launch.conftest import PlanOf
from tests.unit.stats.factory import spec_of


def write_progress(run_dir: Path, task: str, line: str) -> None:
    """A task says where it is."""
    (run_dir / "progress").mkdir(exist_ok=True)
    (run_dir / "progress" / task).write_text(line)


def age(watch: Watch, task: str, seconds: float) -> None:
    """Let a task's last change be so long ago."""
    watch._changed[task] -= seconds


def test_progress_is_reported_once(tmp_path: Path) -> None:
    """A change of a task is reported once."""
    watch = Watch(tmp_path, ("rank-0",))
    write_progress(tmp_path, "rank-0", "1.5 3 40 training 2")

    news = watch.look()

    assert news == [Progress(task="rank-0", step=3, total_steps=40, phase="training", fit=2)]
    assert watch.look() == []


@pytest.mark.parametrize(
    "line", ["", "1.5 3", "1.5 x 40 training 1", "1.5 ² 40 training 1", "1.5 3 40 training"]
)
def test_a_line_that_is_not_whole_is_passed_over(line: str, tmp_path: Path) -> None:
    """A half-written progress file is ignored; it is no error."""
    watch = Watch(tmp_path, ("rank-0",))
    write_progress(tmp_path, "rank-0", line)

    assert watch.look() == []


@pytest.mark.parametrize(
    ("phase", "deadline_s", "patience_s"),
    [("importing", 20, 120), ("building", 120, 1200), ("compiling", 20, 600), ("training", 20, 20)],
)
def test_each_phase_has_its_patience(
    phase: str, deadline_s: float, patience_s: float, tmp_path: Path
) -> None:
    """What is one long call has ten times the deadline, at least ten minutes; it is named."""
    watch = Watch(tmp_path, ("rank-0",))
    write_progress(tmp_path, "rank-0", f"1.5 3 40 {phase} 1")
    watch.look()
    age(watch, "rank-0", patience_s - 10)

    early = watch.standing_still(deadline_s)
    age(watch, "rank-0", 11)
    late = watch.standing_still(deadline_s)

    assert early == (patience_s, [])
    assert (late[0], [str(one) for one in late[1]]) == (
        patience_s,
        [f"rank-0 was {phase}, step 3 of 40"],
    )


def test_who_waits_for_a_patient_phase_has_time_too(tmp_path: Path) -> None:
    """While one task saves, its peers wait at their next step, and afterwards too for a while."""
    watch = Watch(tmp_path, ("worker-0", "worker-1"))
    write_progress(tmp_path, "worker-0", "1.5 9 40 saving 1")
    write_progress(tmp_path, "worker-1", "1.5 9 40 training 1")
    watch.look()
    age(watch, "worker-0", 90)
    age(watch, "worker-1", 95)

    saving = watch.standing_still(20)
    write_progress(tmp_path, "worker-0", "91.5 9 40 training 1")
    watch.look()
    saved = watch.standing_still(20)
    age(watch, "worker-1", 21)
    later = watch.standing_still(20)

    assert [saving, saved] == [(600, []), (20, [])]
    assert [progress.task for progress in later[1]] == ["worker-1"]


def test_one_task_that_stands_still_is_enough(tmp_path: Path) -> None:
    """A task that was never heard of is silent too, and the first one to look at."""
    watch = Watch(tmp_path, ("rank-0", "rank-1", "rank-2"))
    write_progress(tmp_path, "rank-1", "1.5 3 40 training 1")
    write_progress(tmp_path, "rank-2", "1.5 4 40 training 1")
    watch.look()
    age(watch, "rank-0", 130)
    age(watch, "rank-1", 150)

    seconds, still = watch.standing_still(20)

    assert seconds == 120
    assert [str(progress) for progress in still] == [
        "rank-0 was never heard of",
        "rank-1 was training, step 3 of 40",
    ]


def test_servers_and_finished_tasks_may_wait(tmp_path: Path) -> None:
    """A server makes no steps, and a finished task waits for the others."""
    watch = Watch(tmp_path, ("ps-0", "worker-0", "worker-1"))
    write_progress(tmp_path, "ps-0", "1.5 0 0 serving 1")
    write_progress(tmp_path, "worker-0", "1.5 40 40 finished 1")
    write_progress(tmp_path, "worker-1", "1.5 39 40 training 1")
    watch.look()
    age(watch, "ps-0", 90)
    age(watch, "worker-0", 90)

    assert watch.standing_still(20) == (20, [])


def test_finished_processes_must_end(tmp_path: Path) -> None:
    """If all have finished but none ends, the run stands still."""
    watch = Watch(tmp_path, ("rank-0",))
    write_progress(tmp_path, "rank-0", "1.5 40 40 finished 1")
    watch.look()
    age(watch, "rank-0", 30)

    assert [progress.task for progress in watch.standing_still(20)[1]] == ["rank-0"]


def test_live_output_comes_in_whole_lines_with_names(tmp_path: Path) -> None:
    """A line is shown when it is whole, and once; the end shows what is left."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "rank-0.log"
    shown = io.StringIO()
    follower = Follower(tmp_path, shown)

    log.write_text("one\ntw")
    follower.copy()
    after_first = shown.getvalue()
    log.write_text("one\ntwo\nthree")
    follower.copy()
    follower.copy(rest=True)

    assert after_first == "[rank-0] one\n"
    assert shown.getvalue() == "[rank-0] one\n[rank-0] two\n[rank-0] three\n"


def test_an_outer_launcher_is_not_passed_on() -> None:
    """A run under mpirun, or with a TF_CONFIG, does not pass these on to its tasks."""
    outer = {
        "HOME": "/root",
        "HOROVOD_RANK": "1",
        "HOROVOD_LOG_LEVEL": "debug",
        "OMPI_COMM_WORLD_SIZE": "2",
        "PMI_RANK": "1",
        "RANK": "1",
        "RINGSIDE_LAUNCHER": "1:2",
        "TF_CONFIG": "{}",
        "PATH": "/usr/bin",
    }

    env = environment(outer, Process(name="a", argv=("b",), env={"ADDED": "1"}), tell="")

    assert env == {
        "HOME": "/root",
        "HOROVOD_LOG_LEVEL": "debug",
        "PYTHONHASHSEED": "0",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin",
        "ADDED": "1",
    }


def test_a_taken_port_and_an_unseen_folder_are_obstacles(tmp_path: Path) -> None:
    """The machine reports all obstacles at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        found = obstacles(tmp_path / "spec.json", [port])

    assert found == [
        f"port {port} is taken: wait, or repeat (the next run takes others)",
        f"{tmp_path}/spec.json is not there; all machines must see the run's folder",
    ]


def test_tidying_removes_halves_only(tmp_path: Path) -> None:
    """Temporary files of an interrupted write are removed; whole records stay."""
    (tmp_path / "records").mkdir()
    whole = tmp_path / "records" / "rank-0.json"
    half = tmp_path / "records" / ".rank-1.json.x7.half"
    for file in (whole, half, tmp_path / ".checkpoint.npz.u1.half"):
        file.write_text("{")

    tidy(tmp_path)

    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["rank-0.json"]


TASK = """
import sys, tempfile
from pathlib import Path
from launch.task import end_process, run_launched

def work(record, surroundings, run_dir, reporter):
    Path(run_dir, "seen").write_text(tempfile.mkdtemp())

end_process(run_launched(work, sys.argv[1:]))
"""


@pytest.mark.parametrize("run_id", ["", "5ca1ab1e"])
def test_a_task_makes_its_folder_and_removes_its_temporary_files(
    run_id: str, tmp_path: Path
) -> None:
    """In a folder that no one has made, as on a claim of Kubernetes; of a run, or of none."""
    (tmp_path / "spec.json").write_text(spec_of("serial").to_json())
    (tmp_path / "t").mkdir()
    run_dir = tmp_path / "new" / "run"
    env = {**os.environ, "TMPDIR": str(tmp_path / "t"), "RINGSIDE_RUN_ID": run_id}

    done = subprocess.run(
        [
            *(sys.executable, "-c", TASK),
            *("--spec", str(tmp_path / "spec.json"), "--run-dir", str(run_dir)),
        ],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    made = Path((run_dir / "seen").read_text())
    assert made.parent.name.startswith("ringside-5ca1ab1e-" if run_id else "t")
    assert (list((tmp_path / "t").iterdir()) == []) == bool(run_id)
    record = RunRecord.from_json((run_dir / "records" / "rank-0.json").read_text())
    assert 0 < (record.shared_memory_bytes or 0) < record.peak_memory_bytes
    assert record.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_job_that_does_not_end_is_a_survivor(tmp_path: Path, plan_of: PlanOf) -> None:
    """The command that ends a remote job says by its exit code that it could not."""
    (tmp_path / "logs").mkdir()
    plan = plan_of("serial", replicas=1)
    plan = plan.replace(
        run_dir=str(tmp_path),
        processes=(Process(name=LAUNCHER_NAME, argv=("true",)),),
        run_id=secrets.token_hex(8),
        cleanup=(("true",), ("sh", "-c", "exit 1")),
    )

    with Children(plan, dict(os.environ)) as children:
        children.wait(30)

    assert children.survivors == ["what `sh -c 'exit 1'` did not end"]
