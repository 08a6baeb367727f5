"""A user's project with modules of common names trains under every launcher."""

import os
from pathlib import Path

import pytest

from ringside.comparison.available_arms import ask
from ringside_core.specs import Arm, RunRecord, backend_options
from tests.parallel.test_as_typed import LIMIT_S, activated, typed

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(LIMIT_S + 60)

# Modules beside train.py, which is the user's too, and packages that the checkout has as well.
MODULES = ("cli", "compare", "lab", "measure", "report", "specs", "stats", "utils", "verify")
PACKAGES = ("benchmarks", "docs", "examples", "scripts", "tests", "workloads")
OWN = '''"""The user's file; every module that it imports must be one of the user's."""

from pathlib import Path

from ringside import QualityTarget, Workload, tf
{imports}
from measure import speed
from allreduce_task import MINE  # of a library that PYTHONPATH names
from workloads.numbers import numbers

HERE = Path(__file__).parent
for module in ({modules}):
    assert Path(module.__file__).is_relative_to(HERE), module


def build():
    return Workload(
        name="own",
        model=lambda: tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))]),
        train=numbers(),
        validation=numbers(),
        loss="mse",
        optimizer=lambda: tf.keras.optimizers.SGD(speed()),
        target=QualityTarget("loss", 0.0),
    )
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's project: `train.py:build`, and `own.py`, which says `from train import build`."""
    folder = tmp_path_factory.mktemp("user") / "project"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text("def speed():\n    return 0.1\n")
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
    (folder / "workloads" / "numbers.py").write_text(
        "import numpy as np\n\n\ndef numbers():\n    x = np.ones((8, 1), np.float32)\n"
        "    return x, 2 * x\n"
    )
    every = (*MODULES, *PACKAGES)
    (folder / "train.py").write_text(
        OWN.format(imports="\n".join(f"import {name}" for name in every), modules=", ".join(every))
    )
    (folder / "own.py").write_text("from train import build\n")
    # Installed by the user, outside of the project: the checkout's own file must not hide it.
    library = folder.parent / "library"
    library.mkdir()
    (library / "allreduce_task.py").write_text("MINE = True\n")
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working folder that is neither the project nor the checkout."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def environment(project: Path, **more: str) -> dict[str, str]:
    """Of a shell of the user's, whose PYTHONPATH names his library."""
    path = [str(project.parent / "library"), os.environ.get("PYTHONPATH", "")]
    return {**activated(), "PYTHONPATH": os.pathsep.join(filter(None, path)), **more}


def started(*command: str, cwd: Path, project: Path) -> None:
    """Run a command to its end."""
    done = typed(*command, cwd=cwd, env=environment(project))

    assert done.returncode == 0, done.stdout + done.stderr


def must_have_trained(run_dir: Path, tasks: int) -> None:
    """Every task has a record of a completed run; those that train saw the 8 examples."""
    records = [RunRecord.from_json(path.read_text()) for path in run_dir.glob("records/*.json")]

    assert len(records) == tasks
    assert all(record.outcome.completed for record in records)
    assert records[0].epochs[0].examples == 8


BRIEF = ("--epochs", "1", "--global-batch", "4", "--save", "record", "--run-dir")


def test_one_process_by_hand(project: Path, elsewhere: Path, tmp_path: Path) -> None:
    """`python train.py`, ours, for a workload in train.py, the user's, beside his report.py."""
    path = os.path.relpath(project / "train.py", elsewhere)

    started(
        "python", str(ROOT / "train.py"), "--workload", f"{path}:build",
        *BRIEF, str(tmp_path / "run"), cwd=elsewhere, project=project,
    )  # fmt: skip

    must_have_trained(tmp_path / "run", 1)


def test_launched_over_a_hostfile(project: Path, elsewhere: Path, tmp_path: Path) -> None:
    """`ringside launch` by mpirun, from another folder."""
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")

    started(
        "ringside", "launch", "--backend", "horovod", "--replicas", "2", "--launcher", "mpirun",
        "--hostfile", str(hosts), "--workload", f"{project}/own.py:build",
        *BRIEF, str(tmp_path / "run"), cwd=elsewhere, project=project,
    )  # fmt: skip

    must_have_trained(tmp_path / "run", 2)


def test_the_look_at_a_workload_takes_ringsides_trainers(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package `trainers` in the working folder is of no use to a workload that is elsewhere."""
    (elsewhere / "trainers").mkdir()
    (elsewhere / "trainers" / "__init__.py").touch()
    monkeypatch.chdir(elsewhere)

    answer = ask(
        (
            Arm(
                label="serial",
                group="serial",
                backend="serial",
                options=backend_options("serial", {}),
                replicas=1,
            ),
        )
    )

    assert answer["obstacles"] == [None]
