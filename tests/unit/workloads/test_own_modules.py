"""A user's own modules: which names are refused, and which are missing, before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

import ringside.cli.main
from ringside_core.specs import RefusalError
from ringside_core.workloads.registry import ROOFS, ROOT, check_folder, load_function

# What a user's project is likely to hold, also names that Ringside's own checkout has.
USUAL = (
    *("report", "measure", "cli", "lab", "train", "specs", "verify", "compare", "stats", "utils"),
    *("workloads", "tests", "examples", "benchmarks", "scripts", "docs"),
)
COMMANDS = {
    "compare": ("compare",),
    "compare as a plan": ("compare", "--dry-run"),
    "verify": ("verify",),
    "launch": ("launch", "--backend", "horovod", "--replicas", "2"),
    "launch as a plan": ("launch", "--dry-run"),
    "kubernetes": ("kubernetes", "--image", "registry/ringside:1", "--claim", "c"),
}


@pytest.fixture(autouse=True)
def unchanged_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a user's file changes where Python looks."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with `own.py` and one module or package of each usual name."""
    folder = tmp_path / "project"
    for name in USUAL[:10]:
        (folder / f"{name}.py").parent.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text("")
    for name in USUAL[10:]:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    (folder / "own.py").write_text("def workload(): pass\ndef odd(x): return True\n")
    return folder


@pytest.mark.parametrize("roof", ROOFS)
@pytest.mark.parametrize("kind", ["module", "package", "folder"])
def test_names_of_ringsides_packages_are_refused(project: Path, roof: str, kind: str) -> None:
    """A module, a package, and a folder whose modules can be imported without `__init__.py`."""
    files = {"module": f"{roof}.py", "package": f"{roof}/__init__.py", "folder": f"{roof}/it.py"}
    (project / files[kind]).parent.mkdir(exist_ok=True)
    (project / files[kind]).touch()

    with pytest.raises(RefusalError, match="Rename it") as refused:
        check_folder(project)

    assert str(project / files[kind]) in str(refused.value)


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("reference", ["file", "module"])
def test_every_command_refuses_before_it_starts_anything(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    reference: str,
) -> None:
    """By file from another folder, and by module from the project's; one message, exit code 2."""
    (project / "launch.py").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where, name = {
        "file": (elsewhere, "../project/own.py:workload"),
        "module": (project, "own:workload"),
    }[reference]
    monkeypatch.chdir(where)
    before = sorted(tmp_path.rglob("*"))

    code = ringside.cli.main.run([*arguments, "--workload", name])

    said = capsys.readouterr().err
    assert code == 2
    assert f"Received: {project / 'launch.py'}" in said
    assert "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("roof", [roof for roof in ROOFS if roof != "ringside"])
def test_modules_on_pythonpath_are_refused_before_they_take_ringsides_place(
    project: Path, roof: str
) -> None:
    """The command would end with a traceback from the wrong module.

    With a `ringside.py` there, nothing of Ringside is ever imported, so nothing can refuse it.
    """
    (project / f"{roof}.py").touch()
    path = f"{project}:{ROOT}"

    done = subprocess.run(
        [sys.executable, "-P", "-c", "from ringside.cli.main import main; main()", "launch"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2, done.stderr
    assert f"Received: {project / f'{roof}.py'}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_users_modules_come_before_those_of_the_checkout(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those on PYTHONPATH, though `python train.py` puts the checkout before them."""
    installed = tmp_path / "installed"
    monkeypatch.setattr(sys, "path", [str(ROOT), str(installed), *sys.path])

    load_function(f"{project / 'own.py'}:workload")

    assert sys.path[0] == str(project)
    assert sys.path.index(str(installed)) < sys.path.index(str(ROOT)) == len(sys.path) - 1


def test_ringside_is_imported_without_tensorflow() -> None:
    """`import ringside` is quick; only a name that needs TensorFlow brings it."""
    program = (
        "import sys, ringside\n"
        "assert {'QualityTarget', 'Workload', 'fit', 'scope', 'tf'} < set(ringside.__all__)\n"
        "assert not hasattr(ringside, 'Wordload')\n"
        "assert not {'tensorflow', 'ringside_core', 'pydantic'} & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nowhere.py:odd", "The workload's file must exist"),
        ("nowhere.at_all:odd", "The workload's module must be importable"),
    ],
)
def test_what_is_missing_is_named(reference: str, words: str) -> None:
    """A file, or a module."""
    with pytest.raises(RefusalError, match=words):
        load_function(reference)


@pytest.mark.parametrize("reference", ["file", "module"])
def test_an_import_that_fails_is_named_with_its_line(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the user's own file."""
    monkeypatch.chdir(tmp_path)
    name = f"specs_of_mine_{reference}"
    (tmp_path / f"{name}.py").write_text("import os\nimport not_installed\n")
    location = {"file": f"{name}.py", "module": name}[reference]

    with pytest.raises(RefusalError, match="must import without an error") as refused:
        load_function(f"{location}:workload")

    assert f"{name}.py, line 2" in str(refused.value)
