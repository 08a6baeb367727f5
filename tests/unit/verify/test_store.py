"""A certificate is used again only where nothing has changed since."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringside.verify import store
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Arm,
    Certificate,
    Check,
    Host,
    PipelineOptions,
    Placement,
    RunSpec,
    Topology,
)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def spec(**changes: Any) -> RunSpec:
    """A run of two replicas."""
    fields = {
        "backend": "mirrored",
        "options": {},
        "topology": Topology(replicas_per_process=2),
        "global_batch": 12,
        "epochs": 1,
    }
    return RunSpec(**{**fields, **changes})


def certificate(**changes: Any) -> Certificate:
    """One that passes."""
    run = changes.pop("spec", spec())
    arm = Arm(label="m", group="m", backend=run.backend, options=run.options, replicas=2)
    fields = {
        "arm": arm,
        "spec": run,
        "kind": "exact",
        "steps": 20,
        "code_version": store.code_version(),
        "machine": machine_facts(),
        "created_unix_s": 1.0,
        "checks": (Check(name="float64 parity", passed=True, finding="equal"),),
    }
    return Certificate(**{**fields, **changes})


def test_what_was_kept_is_found() -> None:
    """For the same run and number of steps."""
    store.keep(certificate())

    assert store.find(spec(), steps=20) == certificate()
    assert store.find(spec(), steps=40) is None
    assert store.find(spec(seed=2), steps=20) is None


def test_a_certificate_is_of_its_hosts_and_launcher() -> None:
    """Other hosts, slots or another launcher need another certificate."""
    a, b = Host(name="localhost"), Host(name="b")
    two, other = Placement(hosts=(a, b)), Placement(hosts=(a, b.replace(slots=2)))
    made = certificate(hosts=two.hosts)
    store.keep(made)

    assert store.find(spec(), steps=20, placement=two) == made
    assert store.find(spec(), steps=20, placement=other) is None
    assert store.find(spec(), steps=20, placement=two, launcher="mpirun") is None
    assert store.find(spec(), steps=20) is None
    assert store.stale(made, spec(), two) == ""
    assert store.stale(made, spec(), other) == "it was made on other hosts"
    assert store.stale(made, spec()) == "it was made on other hosts"


def test_a_certificate_of_version_1_is_of_one_machine() -> None:
    """Version 1 knew neither hosts nor launchers."""
    body = {**json.loads(certificate().to_json()), "schema_version": 1}
    del body["hosts"], body["launcher"]

    assert Certificate.from_json(json.dumps(body)) == certificate()


def test_what_did_not_pass_is_not_used() -> None:
    """It is verified again, because the machine may have been the cause."""
    failed = Check(name="float64 parity", passed=False, finding="parts")
    store.keep(certificate(checks=(failed,)))

    assert store.find(spec(), steps=20) is None


def test_a_change_of_code_machine_or_spec_is_told() -> None:
    """Each makes a certificate stale, and the reason is told."""
    packages = {**machine_facts().packages, "tensorflow": "2.17.0"}
    other = machine_facts().replace(packages=packages)

    assert not store.stale(certificate(), spec())
    assert "this is" in store.stale(certificate(), spec(global_batch=24))
    assert "code has changed" in store.stale(certificate(code_version="0"), spec())
    assert "other packages" in store.stale(certificate(machine=other), spec())


def test_a_change_of_the_users_own_code_is_told(tmp_path: Path) -> None:
    """One letter in one file."""
    mine = tmp_path / "my_model.py"
    mine.write_text("layers = 2\n")
    made = certificate(sources={str(mine): store._sha(mine)})

    assert not store.stale(made, spec())
    mine.write_text("layers = 3\n")
    assert str(mine) in store.stale(made, spec())
    mine.unlink()
    assert str(mine) in store.stale(made, spec())


def test_ringsides_own_modules_are_not_a_users() -> None:
    """In a process that verifies, before it loads a workload; also of what certifies and tests."""
    program = (
        "import ringside.compare.arms, ringside.verify.certify, ringside.verify.task\n"
        "from ringside.verify.store import users_code\n"
        "assert users_code() == {}, users_code()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=store.ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_what_changed_since_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of Ringside or of the user, after this process loaded both."""
    mine, root = tmp_path / "my_model.py", tmp_path / "ringside"
    mine.write_text("layers = 2\n")
    for name in store.COVERED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("") if name.endswith(".py") else (root / name).mkdir()
    (root / "backends" / "serial.py").write_text("a = 1\n")
    monkeypatch.setattr(store, "ROOT", root)
    code = store.code_now()
    made = certificate(code_version=code, sources={str(mine): store._sha(mine)})
    assert store.changed_since([made], code) == ""
    assert store.changed_since([], "") == ""

    mine.write_text("layers = 3\n")
    assert "my_model.py has changed" in store.changed_since([made], code)
    (root / "backends" / "serial.py").write_text("a = 2\n")
    for of_code in (store.changed_since([made], ""), store.changed_since([], code)):
        assert of_code == "Ringside's code has changed since"


def test_a_users_own_workload_is_certified_anew() -> None:
    """Nobody knows what it reads or imports later, nor what its filter does."""
    for run in (
        spec(workload="my_model.py:workload"),
        spec(pipeline=PipelineOptions(filter="my_filter.py:keep")),
    ):
        store.keep(certificate(spec=run))

        assert store.find(run, steps=20) is None


def test_orders_in_the_environment_make_another_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some variables change how TensorFlow and Horovod compute."""
    store.keep(certificate())
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2")

    assert store.find(spec(), steps=20) is None


def test_a_damaged_file_is_as_none() -> None:
    """Then the arm is certified again."""
    path = store.keep(certificate())
    path.write_text(path.read_text()[:100])

    assert store.find(spec(), steps=20) is None
