"""Runs in the queue of Slurm: the script, whole; what is refused; what a job's end is called."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launch import Plan, Site, make_plan
from launch.launchers.slurm import Slurm
from launch.watch import Watch
from ringside_core.specs import Placement, RefusalError, Resources
from tests.unit.launch.test_outcome import Scene
from tests.unit.stats.factory import spec_of

RUN_DIR = Path("/runs/100 %")


TRAIN = (
    "/venv/bin/python -u /ringside/train.py "
    "--spec '/runs/100 %/spec.json' --run-dir '/runs/100 %' --log"
)
JOB = ("/venv/bin/python", "-I", "-S", "/ringside/launch/launchers/slurm_job.py")


def planned(
    site: Site,
    backend: str,
    *,
    replicas: int = 2,
    options: dict[str, Any] | None = None,
    cores: int | None = None,
    nodes: int | None = None,
    lines: Sequence[str] = (),
) -> Plan:
    """The plan of a run, from a machine that does not exist."""
    own = Resources(cores_per_replica=cores)
    spec = spec_of(backend, replicas, options=options or {}, resources=own, global_batch=24)
    launcher = Slurm(nodes=nodes, lines=tuple(lines))
    return make_plan(spec, run_dir=RUN_DIR, launcher=launcher, site=site)


def test_script_of_horovod(site: Site) -> None:
    """Two ranks on each of two nodes; the user's options come last, so that they win."""
    plan = planned(
        site, "horovod", replicas=4, cores=3, nodes=2, lines=("--partition=gpu", "--time=1:00:00")
    )

    assert plan.render() == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=ringside-00000000000000ab\n"
        f"#SBATCH --comment={plan.spec.run_name}\n"
        "#SBATCH --chdir=/home/me\n"
        "#SBATCH --output='/runs/100 %%/logs/slurm.log'\n"
        "#SBATCH --ntasks=4\n"
        "#SBATCH --cpus-per-task=3\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --ntasks-per-node=2\n"
        "#SBATCH --no-requeue\n"
        "#SBATCH --signal=USR1@120\n"
        "#SBATCH --partition=gpu\n"
        "#SBATCH --time=1:00:00\n"
        "export RINGSIDE_RUN_ID=00000000000000ab\n"
        "# They are of the machine that submits: no node would find what they name.\n"
        "unset RINGSIDE_LAUNCHER TF_CONFIG\n"
        f"exec srun --distribution=block --kill-on-bad-exit=1 --cpus-per-task=3 {TRAIN}\n"
    )
    assert plan.expects == ("rank-0", "rank-1", "rank-2", "rank-3")


def test_script_of_a_parameter_server(site: Site) -> None:
    """Coordinator and servers are tasks in addition to the workers, on any node with room."""
    plan = planned(site, "parameter_server", options={"servers": 2}, nodes=2)

    lines = [
        line for line in plan.files["job.sh"].splitlines() if "nodes" in line or "task" in line
    ]
    assert lines == [
        "#SBATCH --ntasks=5",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --nodes=2",
        f"exec srun --distribution=block --kill-on-bad-exit=1 --cpus-per-task=1 {TRAIN}",
    ]
    assert plan.expects == ("chief-0", "worker-0", "worker-1", "ps-0", "ps-1")


@pytest.mark.parametrize(
    ("backend", "replicas", "tasks", "cores", "names"),
    [
        ("mirrored", 3, 1, 3, ("rank-0",)),
        ("multi_worker_mirrored", 2, 2, 1, ("worker-0", "worker-1")),
        ("multi_worker_mirrored", 1, 1, 1, ("rank-0",)),
        ("horovod", 1, 1, 1, ("rank-0",)),
    ],
)
def test_tasks_of_a_backend(
    site: Site, backend: str, replicas: int, tasks: int, cores: int, names: tuple[str, ...]
) -> None:
    """A process with all replicas gets all their cores; such a step has one task."""
    plan = planned(site, backend, replicas=replicas)

    assert f"#SBATCH --ntasks={tasks}\n#SBATCH --cpus-per-task={cores}\n" in plan.render()
    assert "--nodes" not in plan.render()
    assert plan.expects == names


def test_what_submits_it_and_what_ends_it(site: Site) -> None:
    """The job is found by its name, so any process can end it."""
    plan = planned(site, "horovod")

    (launcher,) = plan.processes
    assert launcher.argv == (*JOB, "run", "/runs/100 %/job.sh", "/runs/100 %/logs/slurm.log")
    assert plan.cleanup == ((*JOB, "end", "ringside-00000000000000ab"),)
    assert plan.queued


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"nodes": 3}, "Processes must spread evenly over the nodes. Received: 2 on 3 nodes."),
        ({"lines": ["partition=gpu"]}, "must be one option of sbatch. Received: 'partition=gpu'."),
        ({"lines": ["--mem=1G\nrm -r x"]}, "must be one option of sbatch."),
        ({"lines": ["-N2"]}, "This option of sbatch follows from the run. Received: -N2."),
        ({"lines": ["-Jx"]}, "This option of sbatch follows from the run."),
        ({"lines": ["--job-n=x"]}, "This option of sbatch follows from the run."),
        ({"lines": ["--clusters=far"]}, "This option of sbatch follows from the run."),
    ],
)
def test_refusals(site: Site, how: dict[str, Any], words: str) -> None:
    """Options that contradict each other are refused before anything is asked."""
    with pytest.raises(RefusalError) as refused:
        planned(site, "horovod", **how)

    assert words in str(refused.value)


def test_a_line_break_reaches_no_batch_script(site: Site) -> None:
    """What follows it would be a line of its own, read by sbatch or run by the shell."""
    named = spec_of("horovod", 2, workload="a\n#SBATCH --account=mine")
    plan = Slurm().plan(named, run_dir=Path("/runs"), placement=Placement(), site=site)
    odd = dataclasses.replace(site, cwd="/home/me\n#SBATCH --account=mine")

    assert not [
        line for line in plan.files["job.sh"].splitlines() if line.startswith("#SBATCH --acc")
    ]
    with pytest.raises(RefusalError, match="A path in a batch script must be one line"):
        Slurm().plan(named, run_dir=Path("/runs"), placement=Placement(), site=odd)


def test_a_launcher_names_the_end_of_its_job(site: Site, tmp_path: Path) -> None:
    """Its name is the class of the outcome, with the reason."""
    scene = Scene(planned(site, "horovod"), tmp_path)
    scene.log(
        "launcher",
        "submitted as job 4 of Slurm\nlauncher: JobTimeout: job 4 ended as TIMEOUT, TimeLimit\n",
    )
    scene.exited("launcher", 1)

    outcome = scene.judge().outcome

    assert str(outcome) == "failed(JobTimeout: job 4 ended as TIMEOUT, TimeLimit)"


def test_the_queue_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours may pass before the first word of any task; then the usual patience begins."""
    clock = [1000.0]
    monkeypatch.setattr("launch.watch.time.monotonic", lambda: clock[0])
    watch = Watch(tmp_path, ("rank-0", "rank-1"), queued=True)

    clock[0] += 36000
    watch.look()
    in_the_queue = watch.standing_still(10)[1]
    (tmp_path / "progress").mkdir()
    for task in ("rank-0", "rank-1"):
        (tmp_path / "progress" / task).write_text("1.5 3 40 training 1")
    watch.look()
    watch.standing_still(10)
    clock[0] += 9
    just_started = watch.standing_still(10)[1]
    clock[0] += 2
    watch.look()
    silent = watch.standing_still(10)[1]

    assert in_the_queue == []
    assert just_started == []
    assert [one.task for one in silent] == ["rank-0", "rank-1"]
