"""What a person types, typed: real launchers, real processes, from the checkout."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launch.site import free_ports
from ringside_core.specs import ClusterTask, RunRecord, parse_tf_config
from tests.nightly import nightly

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240
BRIEF = ("--workload", "digits", "--epochs", "1", "--save", "record")
pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def typed(
    *command: str, env: dict[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout or another folder, as from a shell with .venv activated."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**activated(), **(env or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def activated() -> dict[str, str]:
    """The environment of an activated .venv."""
    folder = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([folder, os.environ["PATH"]]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def read_records(run_dir: Path) -> dict[str, RunRecord]:
    """Records of a run by task; every one must be completed."""
    records = {
        path.stem: RunRecord.from_json(path.read_text())
        for path in (run_dir / "records").glob("*.json")
    }
    assert all(record.outcome.completed for record in records.values()), records
    return records


def cluster(**counts: int) -> list[ClusterTask]:
    """Every task of a cluster on this machine."""
    ports = iter(free_ports(sum(counts.values())))
    addresses = {
        kind: [f"localhost:{next(ports)}" for _ in range(count)] for kind, count in counts.items()
    }
    first = next(iter(counts))
    text = json.dumps({"cluster": addresses, "task": {"type": first, "index": 0}})
    return parse_tf_config(text).cluster.tasks()


def typed_in_every_task(
    tasks: list[ClusterTask], *flags: str, program: str = "train.py", cwd: Path = ROOT
) -> dict[str, int]:
    """`TF_CONFIG=… python train.py …` once for each task; exit codes by task."""
    started = {
        task.name: subprocess.Popen(
            ["python", program, *flags],
            cwd=cwd,
            env={**activated(), "TF_CONFIG": task.to_tf_config()},
            stdout=subprocess.DEVNULL,
        )
        for task in tasks
    }
    try:
        return {name: process.wait(LIMIT_S) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_horovodrun_four_ranks(tmp_path: Path) -> None:
    """`horovodrun -np 4 python train.py`: four ranks, each row once, one set of weights."""
    done = typed("horovodrun", "-np", "4", "python", "train.py", *BRIEF, "--run-dir", str(tmp_path))

    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path)
    assert sorted(records) == ["rank-0", "rank-1", "rank-2", "rank-3"]
    assert {r.spec.backend for r in records.values()} == {"horovod"}
    assert {r.epochs[0].examples for r in records.values()} == {1437}
    assert len({r.final_digest for r in records.values()}) == 1


def test_mirrored(tmp_path: Path) -> None:
    """`python train.py --backend mirrored --replicas 2` prints each epoch and saves the model."""
    done = typed(
        "python", "train.py", "--backend", "mirrored", "--replicas", "2", "--workload", "digits",
        "--epochs", "1", "--run-dir", str(tmp_path),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("epoch 1: loss")
    assert done.stderr == ""
    assert (tmp_path / "model.keras").is_file()


SCRIPT = str(ROOT / "examples" / "script.py")
ALONE = str(ROOT / "tests" / "training" / "scripts" / "alone.py")


@pytest.mark.parametrize("launcher", [nightly(()), ("horovodrun", "-np", "2")], ids=["", "gloo"])
def test_a_script_by_itself_and_under_horovodrun(launcher: tuple[str, ...], tmp_path: Path) -> None:
    """Each epoch and what follows are printed once; the results are in runs/."""
    done = typed(*launcher, "python", SCRIPT, "--units", "8", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum("epoch 1: loss" in line for line in lines) == 1
    assert sum("epochs, accuracy" in line for line in lines) == 1
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert len(read_records(run_dir)) == (2 if launcher else 1)


def test_a_script_that_fails_in_one_rank_ends_under_horovodrun(tmp_path: Path) -> None:
    """The other rank waits for its gradient; no process stays."""
    done = typed("horovodrun", "-np", "2", "python", ALONE, "raises", "epochs", cwd=tmp_path)

    assert done.returncode != 0
    assert "only here" in done.stdout + done.stderr
    assert not list(tmp_path.glob("epochs.*"))


def test_a_refusal_of_a_script_is_one_message(tmp_path: Path) -> None:
    """No traceback, exit code 2."""
    (tmp_path / "mine.py").write_text(
        "import ringside\nfrom ringside import tf\nmodel = tf.keras.Sequential()\n"
        "ringside.fit(model, [[1.0]], [1.0])\n"
    )
    done = typed("python", "mine.py", cwd=tmp_path)

    assert done.returncode == 2
    assert "\nmine.py: A model must be compiled before fit." in f"\n{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("at_the_top", [False, nightly(True)])
def test_a_backend_that_must_start_first(tmp_path: Path, at_the_top: bool) -> None:
    """What to write is said; and it works."""
    begin = "import ringside\nscope = ringside.scope()\n" if at_the_top else "import ringside\n"
    used = "from ringside import tf\nprint(tf.constant(1) + 1)\n"
    model = "".join(Path(ALONE).read_text().partition("import ringside\n")[::2])
    model = model.replace("ringside.scope()", "scope" if at_the_top else "ringside.scope()")
    (tmp_path / "mine.py").write_text(begin + used + model)
    codes = typed_in_every_task(
        cluster(worker=2), "stops", "epochs", program="mine.py", cwd=tmp_path
    )

    assert set(codes.values()) == ({0} if at_the_top else {2})


def test_tf_config_by_hand_runs_a_script(tmp_path: Path) -> None:
    """TensorFlow is imported by the script itself, below `import ringside`."""
    text = Path(ALONE).read_text().replace("from ringside import tf", "import tensorflow as tf")
    (tmp_path / "mine.py").write_text(text)
    codes = typed_in_every_task(
        cluster(worker=2), "stops", "epochs", program="mine.py", cwd=tmp_path
    )

    assert set(codes.values()) == {0}
    assert {path.read_text() for path in tmp_path.glob("epochs.*")} == {"1"}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for downloads that leads to no task; gRPC would use it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")


@pytest.mark.nightly
@pytest.mark.usefixtures("proxy")
def test_tf_config_by_hand_for_parameter_servers(tmp_path: Path) -> None:
    """Workers and servers end by themselves when the coordinator has gone."""
    tasks = cluster(chief=1, worker=2, ps=1)

    codes = typed_in_every_task(tasks, *BRIEF, "--run-dir", str(tmp_path))

    assert codes == {"chief-0": 0, "worker-0": 0, "worker-1": 0, "ps-0": 0}
    assert read_records(tmp_path)["chief-0"].epochs[0].examples == 1437


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """TensorFlow would abort; the person reads which port it is."""
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = holder.getsockname()[1]
        config = {
            "cluster": {"worker": [f"localhost:{port}"]},
            "task": {"type": "worker", "index": 0},
        }

        done = typed(
            "python", "train.py", "--run-dir", str(tmp_path), env={"TF_CONFIG": json.dumps(config)}
        )

    assert done.returncode == 2
    assert f"localhost:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_horovodrun_around_a_strategy_is_refused(tmp_path: Path) -> None:
    """The message says how the backend is started; no rank trains."""
    done = typed(
        "horovodrun", "-np", "2", "python", "train.py", "--backend", "multi_worker_mirrored",
        "--run-dir", str(tmp_path),
    )  # fmt: skip

    assert done.returncode != 0
    assert "multi_worker_mirrored cannot be started by" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout


def test_a_horovod_of_another_tensorflow_is_refused(tmp_path: Path) -> None:
    """Found before its library is loaded."""
    package = tmp_path / "horovod"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('was loaded')\n")
    (package / "metadata.json").write_text('{"tensorflow": "2.17.0"}')

    done = typed(
        "python", "train.py", "--backend", "horovod", "--run-dir", str(tmp_path / "run"),
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip

    assert done.returncode == 2
    assert "built against 2.17.0" in done.stderr
