"""A certificate is used again only where nothing has changed since."""

import functools
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ringside.certificates import certify_arms, store
from ringside.certificates.subject import Subject
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import Certificate, Host, Placement, RunSpec
from tests.unit.report import proofs
from tests.unit.stats.factory import arm_of, spec_of


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


spec = functools.partial(spec_of, "mirrored", 2, global_batch=12)


def certificate(**changes: Any) -> Certificate:
    """One that passes, of this code on this machine."""
    here = {"code_version": store.code_version(), "machine": machine_facts()}
    return proofs.certificate(arm_of("mirrored", 2), **{"spec": spec(), **here, **changes})


def find(run: RunSpec, **asked: Any) -> Certificate | None:
    """What was kept of a run, unless it is stale."""
    newest = store.newest(run, **asked)
    fresh = newest and not store.stale(newest, run, asked.get("placement", Placement()))
    return newest if fresh else None


def test_what_was_kept_is_found() -> None:
    """For the same run and number of steps."""
    store.keep(certificate())

    assert find(spec(), steps=20) == certificate()
    assert find(spec(), steps=40) is None
    assert find(spec(seed=2), steps=20) is None


def test_a_certificate_is_of_its_hosts_and_launcher() -> None:
    """Other hosts, slots or another launcher need another certificate."""
    a, b = Host(name="localhost"), Host(name="b")
    two, other = Placement(hosts=(a, b)), Placement(hosts=(a, b.replace(slots=2)))
    made = certificate(hosts=two.hosts)
    store.keep(made)

    assert find(spec(), steps=20, placement=two) == made
    assert find(spec(), steps=20, placement=other) is None
    assert find(spec(), steps=20, placement=two, launcher="mpirun") is None
    assert find(spec(), steps=20) is None
    assert store.stale(made, spec(), two) == ""
    assert store.stale(made, spec(), other) == "it was made on other hosts"
    assert store.stale(made, spec()) == "it was made on other hosts"


def test_what_did_not_pass_is_not_used() -> None:
    """It is verified again, because the machine may have been the cause."""
    store.keep(proofs.failed(certificate()))

    assert find(spec(), steps=20) is None


def test_a_change_of_code_machine_or_spec_is_reported() -> None:
    """Each makes a certificate stale, and the reason is given."""
    packages = {**machine_facts().packages, "tensorflow": "2.17.0"}
    other = machine_facts().replace(packages=packages)

    assert not store.stale(certificate(), spec())
    assert "this is" in store.stale(certificate(), spec(global_batch=24))
    assert "code has changed" in store.stale(certificate(code_version="0"), spec())
    assert "other packages" in store.stale(certificate(machine=other), spec())


def test_a_change_of_the_users_own_code_is_reported(tmp_path: Path) -> None:
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
        "import ringside.comparison.arms\n"
        "from ringside.certificates import certify, trial\n"
        "from ringside.certificates.store import users_code\n"
        "assert users_code() == {}, users_code()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=store.ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_what_changed_since_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_users_own_workload_is_certified_again() -> None:
    """What it reads or imports later is unknown."""
    run = spec(workload="my_model.py:workload")
    store.keep(certificate(spec=run))

    assert find(run, steps=20) is None


@pytest.mark.parametrize("name", ["LD_PRELOAD", "NVIDIA_TF32_OVERRIDE", "TF_XLA_FLAGS"])
def test_a_variable_that_libraries_obey_makes_it_stale(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable, and not its value: it may be secret."""
    monkeypatch.delenv(name, raising=False)
    unset = certificate()
    store.keep(unset)

    monkeypatch.setenv(name, "hunter2")
    assert find(spec(), steps=20) is None
    assert store.stale(unset, spec()) == f"{name} is new since"
    is_set = certificate()
    assert store.stale(is_set, spec()) == ""
    assert "hunter2" not in is_set.to_json()
    monkeypatch.setenv(name, "hunter3")
    assert store.stale(is_set, spec()) == f"{name} has changed since"
    monkeypatch.delenv(name)
    assert store.stale(is_set, spec()) == f"{name} is gone since"


@pytest.mark.parametrize(
    "file",
    ["home/.openmpi/mca-params.conf", "openmpi/etc/openmpi-mca-params.conf", "keras/keras.json"],
)
def test_a_librarys_own_configuration_file_makes_it_stale(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's and the system's of Open MPI, and Keras'; between rounds too."""
    for name, folder in {"HOME": "home", "OPAL_PREFIX": "openmpi", "KERAS_HOME": "keras"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    without = certificate()
    store.keep(without)
    assert find(spec(), steps=20) == without

    path.write_text("a = 1\n")
    assert find(spec(), steps=20) is None
    assert store.stale(without, spec()) == f"{path} is new since"
    made = certificate()
    path.write_text("a = 2\n")
    for why in (store.stale(made, spec()), store.changed_since([made], "")):
        assert why == f"{path} has changed since"
    path.unlink()
    assert store.stale(made, spec()) == f"{path} is gone since"


def test_keras_files_are_found_where_keras_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without KERAS_HOME below the user's folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_HOME", raising=False)
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text("{}")

    assert str(tmp_path / ".keras" / "keras.json") in store.orders()


def test_other_packages_make_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also packages that the machine's facts do not list."""
    made = certificate()
    monkeypatch.setattr(store, "_installed", lambda: "another set")

    assert store.stale(made, spec()) == "the set of installed packages has changed since"


def test_the_console_says_why_an_arm_is_certified_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all arms, with what has changed."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    store.keep(certificate())
    monkeypatch.setenv("LD_PRELOAD", "")
    subject = Subject(certificate().arm, spec())
    monkeypatch.setattr(certify_arms, "certify", lambda group, **_: [certificate()])
    printed = io.StringIO()

    certify_arms.certify_arms(Console(file=printed, width=120), [subject], tmp_path, reuse=True)

    assert "certified again: LD_PRELOAD is new since\n" in printed.getvalue()


def test_arms_of_two_keras_have_two_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A serial run is of one Keras."""
    groups: list[list[int]] = []

    def certify(group: list[Subject], **_: object) -> list[Certificate]:
        groups.append([one.spec.keras for one in group])
        return [certificate().replace(arm=one.arm) for one in group]

    monkeypatch.setattr(certify_arms, "certify", certify)
    arm = certificate().arm
    subjects = [
        Subject(arm.replace(label=f"{number}"), spec().replace(keras=keras))
        for number, keras in enumerate((2, 3, 2))
    ]

    certify_arms.certify_arms(Console(file=io.StringIO()), subjects, tmp_path, steps=20)

    assert sorted(groups) == [[2, 2], [3]]


def test_a_damaged_file_is_as_none() -> None:
    """Then the arm is certified again."""
    path = store.keep(certificate())
    path.write_text(path.read_text()[:100])

    assert find(spec(), steps=20) is None
