"""The manifests of `ringside kubernetes`, run: by a stand-in for Kubernetes, on real addresses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringside.cli.main
from ringside_core.specs import RunRecord
from tests.nightly import nightly

KUBELET = Path(__file__).with_name("kubelet.py")
TOOLS = ("unshare", "ip", "setpriv", "ssh-keygen", "/usr/sbin/sshd")

missing = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making namespaces needs root"),
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
]


@pytest.fixture(scope="module")
def needs_an_overlay(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where the kernel lays no file system over that of this machine."""
    folder = tmp_path_factory.mktemp("overlay")
    for name in ("root", "upper", "work"):
        (folder / name).mkdir()
    options = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    tried = subprocess.run(
        [
            *("unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options),
            str(folder / "root"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no file system over that of this machine: {tried.stderr.strip()[:200]}")


@pytest.mark.parametrize(
    ("flags", "ended", "records"),
    [
        nightly(
            ["--backend", "horovod", "--replicas", "2"],
            {"launcher": 0, "worker-0": None, "worker-1": None},
            {"rank-0", "rank-1"},
        ),
        (
            ["--backend", "multi_worker_mirrored", "--replicas", "2"],
            {"worker-0": 0, "worker-1": 0},
            {"worker-0", "worker-1"},
        ),
        nightly(
            ["--backend", "parameter_server", "--replicas", "2"],
            {"chief-0": 0, "worker-0": 0, "worker-1": 0, "ps-0": 0},
            {"chief-0", "worker-0", "worker-1", "ps-0"},
        ),
    ],
    ids=["horovod", "multi_worker_mirrored", "parameter_server"],
)
def test_pods_train(
    flags: list[str],
    ended: dict[str, int | None],
    records: set[str],
    needs_an_overlay: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Pods find each other by name, train, and end; the servers among them by themselves."""
    asked = ["kubernetes", *flags, "--image", "none", "--name", "run"]
    asked += ["--workload", "digits", "--epochs", "1"]
    assert ringside.cli.main.run(asked) == 0
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(capsys.readouterr().out)
    folder = tmp_path / "pods"

    # Whatever becomes of us: with the first process of its namespaces everything in them ends.
    done = subprocess.run(
        [
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"),
            *(sys.executable, str(KUBELET), str(manifests), str(folder)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )

    logs = {path.name: path.read_text() for path in (folder / "upper" / "mnt").glob("*.log")}
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {f"run-{k}": v for k, v in ended.items()}, logs
    run_dir = folder / "upper" / "mnt" / "ringside" / "runs" / "run"
    found = {path.stem: RunRecord.from_json(path.read_text()) for path in run_dir.glob("records/*")}
    assert set(found) == records
    assert all(record.outcome.completed for record in found.values()), logs
    trained = [record for record in found.values() if record.role != "server"]
    assert len({record.final_digest for record in trained}) == 1
    assert (run_dir / "model.keras").exists()
