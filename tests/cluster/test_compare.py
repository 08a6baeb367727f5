"""`ringside compare` and `verify` over the hosts of a lab, as a person types them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringside.lab.lab import Lab
from ringside_core.specs import Certificate, Comparison, Topology
from tests.parallel.typed import ringside

SHORT = ("--workload", "synthetic", "-w", "examples=64", "--global-batch", "32")
HOSTS = 2
# Several launched runs, one after the other, while other tests run.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("quick_horovodrun")]


@pytest.fixture(scope="module")
def compared(hostfile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of one stack, by its screening."""
    output = tmp_path_factory.mktemp("compare")
    done = ringside(
        *("compare", "--hostfile", str(hostfile), "--backends", "horovod", "--replicas", "2"),
        *(*SHORT, "--epochs", "2", "--launches", "0", "--no-verify"),
        *("--name", "two", "--output", str(output)),
        output=output,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output / "two"


def test_every_arm_ran_where_it_belongs(lab: Lab, compared: Path) -> None:
    """One replica on the first host, two on both; all were frozen in turn on their own hosts."""
    comparison = Comparison.from_json((compared / "results.json").read_text())
    first, second = (host.name for host in lab.hosts)

    where = {
        run.arm: (run.spec.topology, sorted(record.machine.host for record in run.records))
        for run in comparison.runs
    }

    assert where == {
        "serial ×1": (Topology(), [first]),
        "horovod ×2": (Topology(hosts=2), [first, second]),
    }
    assert comparison.machine.host == first
    assert all(run.blocks for run in comparison.runs)
    paused = [[e.paused_s > 0 for e in run.records[-1].epochs] for run in comparison.runs]
    assert all(map(any, paused))  # a block holds several epochs
    sent = [
        record.epochs[-1].sent_bytes[f"rs-{lab.name}"]
        for run in comparison.runs
        for record in run.records
        if run.arm == "horovod ×2"
    ]
    assert all(count > record_bytes(comparison) for count in sent)
    # What plain TCP carried, before and after.
    assert len(comparison.links) == len(comparison.links_at_end) == HOSTS
    assert all(link.bits_per_s <= 1e9 for link in comparison.links)  # the lab's rate: physics
    assert f"**Interface**: rs-{lab.name}" in (compared / "report.md").read_text()


def record_bytes(comparison: Comparison) -> int:
    """Bytes of one gradient of all weights: each rank sends at least that in an all-reduce of 2."""
    found = {record.gradient_bytes for run in comparison.runs for record in run.records}
    return next(size for size in found if size is not None)


@pytest.mark.nightly
def test_a_fresh_run_sees_the_load_of_its_hosts(hostfile: Path, tmp_path: Path) -> None:
    """Not that of the launching machine: the host of a serial run has one core."""
    done = ringside(
        *("compare", "--hostfile", str(hostfile), "--backends", "serial", "--replicas", "1"),
        *(*SHORT, "--epochs", "2", "--launches", "0", "--no-verify", "--fresh"),
        *("--name", "alone", "--output", str(tmp_path)),
        output=tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (run, *_) = Comparison.from_json((tmp_path / "alone" / "results.json").read_text()).runs
    assert run.load is not None
    assert run.load.cores == 1


def moved(body: dict[str, Any]) -> str:
    """A comparison that began when a name meant another host."""
    name = next(iter(body["addresses"]))
    body["addresses"][name] = "192.0.2.7"
    return "and it was 192.0.2.7"


def slower(body: dict[str, Any]) -> str:
    """One that began when a link carried a tenth."""
    link = body["links"][0]
    link["bytes"] //= 10
    return f"{link['sender']} → {link['receiver']} is "


@pytest.mark.parametrize("changed", [moved, slower])
def test_a_comparison_goes_on_with_its_own_hosts(
    changed: Callable[[dict[str, Any]], str], compared: Path, tmp_path: Path
) -> None:
    """Not with names that mean others now, and not over other links; the file stays as it was."""
    folder = tmp_path / "again"
    shutil.copytree(compared, folder)
    results = folder / "results.json"
    body = json.loads(results.read_text())
    body["ended_because"] = ""  # as if it had been interrupted
    words = changed(body)
    results.write_text(json.dumps(body))

    done = ringside("compare", "--resume", str(folder), output=tmp_path)

    assert done.returncode == 2, done.stderr
    assert words in " ".join(done.stderr.split())
    assert json.loads(results.read_text()) == body


@pytest.mark.parametrize("command", ["compare", "verify"])
def test_a_host_that_is_not_there(command: str, hostfile: Path, lab: Lab, tmp_path: Path) -> None:
    """One message with its name, nothing started, nothing left."""
    three = tmp_path / "three"
    three.write_text(f"{hostfile.read_text()}nowhere.invalid slots=1\n")
    output = tmp_path / "runs"

    done = ringside(command, "--hostfile", str(three), "--output", str(output), output=tmp_path)

    assert done.returncode == 2
    assert "nowhere.invalid: " in done.stderr and "Traceback" not in done.stderr
    assert lab.hosts[0].name not in done.stderr  # which is ready
    assert not output.exists()


@pytest.mark.nightly
def test_a_certificate_is_of_the_hosts(lab: Lab, hostfile: Path, tmp_path: Path) -> None:
    """Two replicas on two hosts compute what one process computes on the first."""
    done = ringside(
        *("verify", "--hostfile", str(hostfile), "--backends", "multi_worker_mirrored"),
        *(*SHORT, "--epochs", "4", "--steps", "4", "--name", "two", "--output", str(tmp_path)),
        output=tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "two" / "certificates").glob("multi*")
    made = Certificate.from_json(path.read_text())
    assert made.passed and made.arm.replicas == HOSTS
    assert [host.name for host in made.hosts] == [host.name for host in lab.hosts]
    assert made.machine.host == lab.hosts[0].name
