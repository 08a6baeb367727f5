"""Scripts that call `ringside.fit` train as `Model.fit` does, under every backend."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from launch import execute, make_plan
from launch.site import ROOT
from ringside_core.specs import Execution, RunSpec
from tests.contract.cases import FAMILIES, PAIRS, Case
from tests.nightly import daily
from tests.training.scripts.trained import BATCH, EPOCHS, PROGRAMS, trained

HERE = Path(__file__).parent / "scripts"
pytestmark = pytest.mark.usefixtures("warm")
CASES = [Case("serial", 1), *FAMILIES]
SEVERAL = [*PAIRS[1:], Case("horovod", 2, {"controller": "mpi"})]  # of several processes
Numbers = dict[str, np.ndarray]


def spec_of(case: Case, script: str, *arguments: str) -> RunSpec:
    """A run of a script of this folder."""
    workload = shlex.join([str(HERE / script), *arguments])
    return case.spec(workload).replace(global_batch=BATCH, epochs=EPOCHS, save="all")


def launched(spec: RunSpec, folder: Path) -> Execution:
    """The run, ended."""
    return execute(make_plan(spec, run_dir=folder), deadline_s=120.0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Numbers]:
    """What plain Keras makes of the script."""
    from ringside_core.keras import tf

    tf.keras.backend.set_floatx("float64")
    yield trained(nullcontext, tf.keras.Model.fit, tmp_path_factory.mktemp("plain"))
    tf.keras.backend.set_floatx("float32")


@pytest.fixture(scope="module", params=daily(CASES, FAMILIES.__contains__), ids=str)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a backend has left of the script."""
    made = tmp_path_factory.mktemp("scripts")
    spec = spec_of(request.param, "trained.py", str(made / "numbers.npz"))
    execution = launched(spec.replace(precision="float64"), made)
    assert execution.outcome.completed, f"{execution.outcome}\n" + "\n".join(execution.last_lines)
    return made


@pytest.mark.parametrize("program", [one.__name__ for one in PROGRAMS])
def test_it_trains_as_model_fit_does(folder: Path, plain: Numbers, program: str) -> None:
    """Histories, weights and decisions; and the model is the author's own again."""
    found = dict(np.load(folder / "numbers.npz"))
    expected = {key: value for key, value in plain.items() if key.startswith(f"{program} ")}

    assert {key for key in found if key.startswith(f"{program} ")} == set(expected)
    for key, value in expected.items():
        if value.dtype.kind in "US":
            assert found[key] == value, key
        else:
            np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-10, err_msg=key)


def test_files_of_callbacks_are_written_once(folder: Path, plain: Numbers) -> None:
    """A line of the log for each epoch; the checkpoint holds the best weights, and loads alone."""
    from ringside_core.keras import tf

    assert len(plain["decided epochs"]) < EPOCHS
    assert (plain["decided lr"][1:] < 0.9 * plain["decided lr"][:-1]).any()
    lines = (folder / "log.csv").read_text().splitlines()
    assert len(lines) == 1 + len(plain["decided epochs"])
    for number, weight in enumerate(
        tf.keras.models.load_model(folder / "best.keras").get_weights()
    ):
        np.testing.assert_allclose(weight, plain[f"decided {number}"], rtol=1e-9, atol=1e-10)


def test_every_training_has_a_record(folder: Path) -> None:
    """The first one where the launcher looks, later ones beside it."""
    expected = {".", "fit-2"}

    assert {str(p.parent.parent.relative_to(folder)) for p in folder.rglob("records/*.json")} == (
        expected
    )


@pytest.mark.parametrize(("how", "epochs"), [("stops", "1"), ("begins", "2")])
@pytest.mark.parametrize("case", daily(PAIRS[1:], FAMILIES.__contains__), ids=str)
def test_a_process_that_stops_alone_stops_all(
    case: Case, how: str, epochs: str, tmp_path: Path
) -> None:
    """At the end of the epoch: only there can all agree (horovod#3140, horovod#4027)."""
    spec = spec_of(case, "alone.py", how, str(tmp_path / "epochs"))
    execution = launched(spec.replace(global_batch=8, epochs=3), tmp_path)

    assert execution.outcome.completed, execution.outcome
    said = {path.suffix: path.read_text() for path in tmp_path.glob("epochs.*")}
    assert said == {".True": epochs, ".False": epochs}
    assert (tmp_path / "saved.keras").is_file()


@pytest.mark.parametrize("case", daily(SEVERAL, FAMILIES.__contains__), ids=str)
def test_a_callback_that_raises_in_one_process_ends_all(case: Case, tmp_path: Path) -> None:
    """The run ends as failed, with the words of that process; nothing hangs."""
    spec = spec_of(case, "alone.py", "raises", str(tmp_path / "epochs"))
    execution = launched(spec.replace(global_batch=8, epochs=3), tmp_path)

    assert execution.outcome.kind == "failed"
    assert "only here" in str(execution.outcome)
    assert not list(tmp_path.glob("epochs.*"))


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "process 1 of 2 of MPICH"),
        ({}, "Run the script in a folder where you may write"),
    ],
)
def test_a_script_that_cannot_begin_says_why_in_one_line(
    env: dict[str, str], words: str, tmp_path: Path
) -> None:
    """Started by a launcher that is not served; or where its results cannot be written."""
    (tmp_path / "runs").write_text("a file, where the results should go")
    (tmp_path / "script.py").write_text("import ringside\nringside.scope()\n")

    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )

    said = done.stderr.splitlines()[-1]
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert words in said
    assert "--" not in said
