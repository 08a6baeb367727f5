"""Every way to start a process inside of an allocation, and what the process takes itself for."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).resolve().parents[3]

# One line of JSON for each process; no TensorFlow.
WHO = f"""#!{sys.executable}
import json, os, sys
from launch.launchers.slurm import node_addresses
from ringside_core.specs import read_surroundings
here = read_surroundings(os.environ, node_addresses).placed(*sys.argv[1:2] or ["horovod"])
print(json.dumps([here.kind, here.rank, here.size, here.local_rank, here.local_size,
                  here.task_name, here.task and here.task.address]))
"""


@pytest.fixture
def who(tmp_path: Path) -> str:
    """A program that prints its surroundings."""
    program = tmp_path / "who"
    program.write_text(WHO)
    program.chmod(0o755)
    return str(program)


def answers(slurm: SlurmCluster, *command: str) -> list[list[object]]:
    """Run a command in an allocation of two nodes; what its processes said, by rank."""
    run = slurm.run("salloc", "--nodes=2", "--ntasks=3", *command, cwd=ROOT)

    assert run.returncode == 0, run.stderr
    return parsed(run.stdout)


def parsed(text: str) -> list[list[object]]:
    """The answers in an output, by rank."""
    # Launchers forward a line and its end apart: two ranks' answers may share a line.
    found = [json.loads(answer) for answer in re.findall(r"\[[^\[\]]*\]", text)]
    return sorted(found, key=lambda said: (said[1], said[5]))


ALONE = ["alone", 0, 1, 0, 1, "rank-0", None]


def test_a_batch_script_is_alone(slurm: SlurmCluster, tmp_path: Path, who: str) -> None:
    """The shell of a batch script has SLURM_PROCID=0, too, but it is no task."""
    out = tmp_path / "out"
    options = ("--wait", "--nodes=2", "--ntasks=3", f"--output={out}")

    job = slurm.run("sbatch", *options, stdin=f"#!/bin/bash\n{who}\n", cwd=ROOT)

    assert job.returncode == 0, job.stderr + out.read_text()
    assert parsed(out.read_text()) == [ALONE]


def test_a_step_of_one_task_is_alone(slurm: SlurmCluster, who: str) -> None:
    """So a shell by `srun --pty bash` can start whatever it likes."""
    said = answers(slurm, "srun", "--ntasks=1", "--nodes=1", who)

    assert said == [ALONE]


def test_mpirun_stays_mpirun(slurm: SlurmCluster, who: str) -> None:
    """Open MPI starts its daemons by srun; its ranks are those of mpirun all the same."""
    prefix = str(Path(sys.executable).parent.parent)

    said = answers(slurm, "mpirun", "--prefix", prefix, who)

    assert [one[:3] for one in said] == [["mpirun", rank, 3] for rank in range(3)]
