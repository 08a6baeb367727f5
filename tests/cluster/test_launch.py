"""Runs across two hosts, started as a person would: on the login node, and on one of the hosts."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lab import Lab
from specs import RunRecord

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LIMIT_S = 240  # of a run of a few seconds: this machine may be busy
pytestmark = pytest.mark.timeout(LIMIT_S + 60)
ONE_EPOCH = ("--epochs", "1", "--save", "record", "--global-batch", "64")


@pytest.fixture(scope="session")
def hostfile(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first two hosts of the lab, a slot each."""
    file = tmp_path_factory.mktemp("hosts") / "two"
    file.write_text("".join(f"{host.name} slots=1\n" for host in lab.hosts[:2]))
    return file


def typed(*words: str, on: str | None = None) -> "subprocess.CompletedProcess[str]":
    """A command typed into a shell with .venv activated: here, or on a host after ssh."""
    line = f"cd {ROOT} && . {BIN}/activate && {shlex.join(words)}"
    command = ["bash", "-c", line] if on is None else ["ssh", "-n", on, line]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def records(run_dir: Path) -> dict[str, RunRecord]:
    """What the tasks of a run wrote, by task."""
    found = [RunRecord.from_json(file.read_text()) for file in (run_dir / "records").iterdir()]
    return {record.task: record for record in found}


def assert_trained(
    run_dir: Path, done: "subprocess.CompletedProcess[str]", tasks: dict[str, str]
) -> None:
    """Every task completed on its host, and all replicas hold the same weights."""
    assert done.returncode == 0, done.stdout + done.stderr
    there = records(run_dir)
    assert {task: record.machine.host for task, record in there.items()} == tasks
    assert all(record.outcome.completed for record in there.values())
    digests = {record.final_digest for record in there.values() if record.final_digest}
    assert len(digests) == 1


BY_HAND = {
    "horovodrun --gloo": ("horovodrun", "-np", "2", "--gloo", "--network-interfaces", "{nic}"),
    "horovodrun --mpi": (
        *("horovodrun", "-np", "2", "--mpi", "--network-interfaces", "{nic}"),
        "--mpi-args=--prefix {venv} --mca oob_tcp_if_include {nic}",
    ),
    "mpirun": (
        *("mpirun", "--allow-run-as-root", "-np", "2", "--bind-to", "none", "--prefix", "{venv}"),
        *("--mca", "btl_tcp_if_include", "{nic}", "--mca", "oob_tcp_if_include", "{nic}"),
        *("-x", "PATH"),
    ),
}


@pytest.mark.parametrize("launcher", BY_HAND)
def test_a_plain_launcher(launcher: str, lab: Lab, tmp_path: Path) -> None:
    """Without `ringside`: each of Horovod's launchers, typed on the login node, trains."""
    one, two = (host.name for host in lab.hosts[:2])
    words = [word.format(nic=lab.interface, venv=BIN.parent) for word in BY_HAND[launcher]]

    done = typed(
        *(*words, "-H", f"{one}:1,{two}:1", "python", "train.py", "--backend", "horovod"),
        *(*ONE_EPOCH, "--run-dir", str(tmp_path / "run")),
    )

    assert_trained(tmp_path / "run", done, {"rank-0": one, "rank-1": two})


def test_tf_config_by_hand(lab: Lab, tmp_path: Path) -> None:
    """One `python train.py` on each host, each with its TF_CONFIG, train together."""
    names = [host.name for host in lab.hosts[:2]]
    cluster = {"worker": [f"{name}:21500" for name in names]}
    started = []
    for index, name in enumerate(names):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        words = ("env", f"TF_CONFIG={config}", "python", "train.py", *ONE_EPOCH)
        line = shlex.join((*words, "--run-dir", str(tmp_path / "run")))
        started.append(
            subprocess.Popen(
                ["ssh", "-n", name, f"cd {ROOT} && . {BIN}/activate && {line}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )

    said = [process.communicate(timeout=LIMIT_S)[0] for process in started]

    done = subprocess.CompletedProcess([], started[0].returncode, *said)
    assert_trained(tmp_path / "run", done, {"worker-0": names[0], "worker-1": names[1]})


REFUSED = {
    "a name that nobody knows": ("{one}\nnowhere.invalid", (), "nowhere.invalid: its name is not "),
    "one host by two names": ("{one}\n{address}", (), "{one} and {address}: one machine"),
    "more replicas than cores": ("{one} slots=2", (), "{one}: 2 replicas on 1 usable cores"),
    "an interface that is not there": (
        "{one}\n{two}",
        ("--interface", "rs-none"),
        "{two}: no interface rs-none, there are lo, {nic}",
    ),
    "a folder of one host alone": (
        "{one}\n{two}",
        ("--run-dir", "/dev/shm/ringside-test"),
        "{two}: it does not see /dev/shm/ringside-test",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_preflight_refuses(case: str, lab: Lab, tmp_path: Path) -> None:
    """A host that is not ready is named with what to do; exit 2, and nothing is there after."""
    hosts, flags, expected = REFUSED[case]
    one, two = lab.hosts[:2]
    known = {"one": one.name, "two": two.name, "address": one.address, "nic": lab.interface}
    hostfile = tmp_path / "hosts"
    hostfile.write_text(hosts.format(**known))

    done = typed(
        *("ringside", "launch", "--backend", "horovod", "--replicas", "2", *ONE_EPOCH),
        *("--hostfile", str(hostfile), "--run-dir", str(tmp_path / "run"), *flags),
    )

    assert done.returncode == 2, done.stdout + done.stderr
    assert expected.format(**known) in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [hostfile]


HERE, FIRST = "login node", "first host"
LAUNCHED = [
    ("serial", (), HERE, ("rank-0 0",)),
    ("multi_worker_mirrored", (), HERE, ("worker-0 0", "worker-1 1")),
    ("multi_worker_mirrored", (), FIRST, ("worker-0 0", "worker-1 1")),
    (
        "parameter_server",
        # On one core TensorFlow's servers have one thread, and wait for each other for ever.
        ("--servers-on", "{two}", "--inter-op-threads", "2"),
        HERE,
        ("chief-0 0", "worker-0 0", "worker-1 1", "ps-0 1"),
    ),
    ("horovod", (), HERE, ("rank-0 0", "rank-1 1")),
    ("horovod", (), FIRST, ("rank-0 0", "rank-1 1")),
    ("horovod", ("--launcher", "mpirun"), HERE, ("rank-0 0", "rank-1 1")),
    ("horovod", ("--launcher", "mpirun"), FIRST, ("rank-0 0", "rank-1 1")),
    (
        "horovod",
        ("--launcher", "horovodrun", "-o", "controller=mpi"),
        HERE,
        ("rank-0 0", "rank-1 1"),
    ),
]


@pytest.mark.parametrize(("backend", "flags", "where", "tasks"), LAUNCHED, ids=str)
def test_ringside_launch(
    backend: str,
    flags: tuple[str, ...],
    where: str,
    tasks: tuple[str, ...],
    lab: Lab,
    hostfile: Path,
    tmp_path: Path,
) -> None:
    """One hostfile drives every backend, from the login node and from a host that takes part."""
    names = [host.name for host in lab.hosts[:2]]
    flags = tuple(flag.format(two=names[1]) for flag in flags)
    replicas = ("--replicas", str(sum(task.startswith(("rank", "worker")) for task in tasks)))

    done = typed(
        *("ringside", "launch", "--backend", backend, *replicas, "--hostfile", str(hostfile)),
        *(*flags, *ONE_EPOCH, "--run-dir", str(tmp_path / "run")),
        on=names[0] if where == FIRST else None,
    )

    places = {task: names[int(index)] for task, index in (text.split() for text in tasks)}
    assert_trained(tmp_path / "run", done, places)
