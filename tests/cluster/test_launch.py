"""Runs across two hosts, started as a person would: on the login node, and on one of the hosts."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ringside.lab.lab import Lab
from ringside_core.specs import read_hostfile
from tests.nightly import daily
from tests.parallel.test_as_typed import read_records

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LIMIT_S = 240  # of a run of a few seconds: this machine may be busy
pytestmark = [pytest.mark.timeout(LIMIT_S + 60), pytest.mark.usefixtures("quick_horovodrun")]
ONE_EPOCH = (
    *("--workload", "digits", "--global-batch", "64"),
    *("--epochs", "1", "--save", "record"),
)


def typed(*words: str, on: str | None = None) -> "subprocess.CompletedProcess[str]":
    """A command typed into a shell with .venv activated: here, or on a host after ssh."""
    line = f"cd {ROOT} && . {BIN}/activate && {shlex.join(words)}"
    command = ["bash", "-c", line] if on is None else ["ssh", "-n", on, line]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def assert_trained(
    run_dir: Path, done: "subprocess.CompletedProcess[str]", tasks: dict[str, str]
) -> None:
    """Every task completed on its host, and all replicas hold the same weights."""
    assert done.returncode == 0, done.stdout + done.stderr
    there = read_records(run_dir)
    assert {task: record.machine.host for task, record in there.items()} == tasks
    digests = {record.final_digest for record in there.values() if record.final_digest}
    assert len(digests) == 1


BY_HAND = {
    "horovodrun --gloo": ("horovodrun", "-np", "2", "--gloo", "--network-interfaces", "{nic}"),
    "mpirun": (
        *("mpirun", "--allow-run-as-root", "-np", "2", "--bind-to", "none", "--prefix", "{venv}"),
        *("--mca", "btl_tcp_if_include", "{nic}", "--mca", "oob_tcp_if_include", "{nic}"),
        *("-x", "PATH"),
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", BY_HAND)
def test_a_plain_launcher(launcher: str, lab: Lab, tmp_path: Path) -> None:
    """Without `ringside`: horovodrun and mpirun, typed on the login node, train.

    `horovodrun --mpi` writes a command of mpirun; Ringside's, below, goes that way.
    """
    one, two = (host.name for host in lab.hosts[:2])
    words = [word.format(nic=lab.interface, venv=BIN.parent) for word in BY_HAND[launcher]]

    done = typed(
        *(*words, "-H", f"{one}:1,{two}:1", "python", "train.py", "--backend", "horovod"),
        *(*ONE_EPOCH, "--run-dir", str(tmp_path / "run")),
    )

    assert_trained(tmp_path / "run", done, {"rank-0": one, "rank-1": two})


@pytest.mark.nightly
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
    "a name that no one knows": ("{one}\nnowhere.invalid", (), "nowhere.invalid: its name is not "),
    "one host by two names": ("{one}\n{address}", (), "{address}: the same machine as {one}"),
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


@pytest.mark.parametrize("file", ["lab2", "lab4", "local4"])
def test_horovods_parser_reads_the_hostfiles(file: str) -> None:
    """Plain `horovodrun --hostfile` takes them: it stops at a comment with an IndexError."""
    from horovod.runner.common.util.hosts import parse_host_files

    path = ROOT / "hostfiles" / file

    hosts = parse_host_files(str(path))

    assert hosts == ",".join(f"{host.name}:{host.slots}" for host in read_hostfile(path))


def test_a_wrong_key(lab: Lab, hostfile: Path, tmp_path: Path) -> None:
    """Every host refuses it: each is named with what to do; nothing is started."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (used,) = {
        Path(line.split()[1])
        for line in Path(f"/etc/ssh/ssh_config.d/ringside-{lab.name}.conf").read_text().splitlines()
        if line.strip().startswith("IdentityFile")
    }
    launch = ("ringside", "launch", "--backend", "horovod", "--replicas", "2", *ONE_EPOCH)
    place = ("--hostfile", str(hostfile), "--run-dir", str(tmp_path / "run"))
    # Only what is started by this shell sees the other key.
    line = f"mount --bind {key} {used} && exec {shlex.join((*launch, *place))}"

    done = typed("unshare", "--mount", "sh", "-c", line)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "2 to mend" in done.stderr and "Traceback" not in done.stderr
    for host in lab.hosts:
        assert f"{host.name}: it refuses the key; name the right one" in done.stderr
    assert not (tmp_path / "run").exists()


HERE, FIRST = "login node", "first host"
LAUNCHED = [
    ("serial", (), HERE, ("rank-0 0",)),
    ("multi_worker_mirrored", (), HERE, ("worker-0 0", "worker-1 1")),
    (
        "parameter_server",
        # On one core: with TensorFlow's own number of threads servers wait for ever.
        ("--servers-on", "{two}"),
        HERE,
        ("chief-0 0", "worker-0 0", "worker-1 1", "ps-0 1"),
    ),
    ("horovod", (), HERE, ("rank-0 0", "rank-1 1")),
    ("horovod", ("--launcher", "mpirun"), FIRST, ("rank-0 0", "rank-1 1")),
]


@pytest.mark.parametrize(
    ("backend", "flags", "where", "tasks"),
    daily(LAUNCHED, lambda one: one[0] == "multi_worker_mirrored" or one[2] == FIRST),
    ids=str,
)
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
