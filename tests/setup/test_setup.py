"""scripts/setup refuses what cannot work, in one line, before it downloads or changes anything."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("g++", "gcc", "c++", "make")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout without .venv."""
    return clone_into(tmp_path / "clone")


def clone_into(target: Path) -> Path:
    """What scripts/setup reads of this checkout, copied."""
    target.mkdir(parents=True)
    shutil.copytree(ROOT / "scripts", target / "scripts")
    for name in ("requirements.lock", "setup.cfg", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, target)
    return target


def base_python() -> Path:
    """The Python that the running .venv was made from."""
    return Path(getattr(sys, "_base_executable", sys.executable))


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH of one directory: the system's commands, Python 3.11, compilers that do nothing."""
    directory = tmp_path / "tools"
    directory.mkdir()
    for source in (Path("/bin"), Path("/usr/bin")):
        for command in source.iterdir():
            link = directory / command.name
            if not link.exists() and not command.name.startswith(("python", *TOOLS, "nvcc")):
                link.symlink_to(command)
    script(directory / "python3.11", f'exec "{base_python()}" "$@"')
    for tool in TOOLS:
        script(directory / tool, "exit 0")
    return directory


def script(path: Path, body: str) -> None:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


SetUp = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def set_up(tmp_path: Path, tools: Path) -> Iterator[SetUp]:
    """Runs scripts/setup of a clone with no way to a package registry, and an empty cache."""

    def run(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        nowhere = "http://127.0.0.1:9"  # the discard port: refused at once
        return subprocess.run(
            [str(clone / "scripts" / "setup")],
            env={
                "PATH": str(tools),
                "HOME": str(tmp_path / "home"),
                "RINGSIDE_CACHE": str(tmp_path / "cache"),
                "PIP_INDEX_URL": nowhere,
                "PIP_EXTRA_INDEX_URL": "",
                "PIP_FIND_LINKS": "",
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_RETRIES": "0",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    yield run


def assert_refused(done: subprocess.CompletedProcess[str], clone: Path, *words: str) -> None:
    """Refused: exit code 2, one line that holds the words, nothing made."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_refuses_a_path_upstream_tools_cannot_stand(
    tmp_path: Path, set_up: SetUp, name: str
) -> None:
    """A checkout whose path holds a space or a colon is refused, and the line shows the path."""
    clone = clone_into(tmp_path / name)

    done = set_up(clone)

    assert_refused(done, clone, str(clone), "Move it")


def stand_in(path: Path, version: str) -> None:
    """A Python that says it is of a version (3.12), and has no venv module."""
    major, minor = version.split(".")
    before = f"""import sys
sys.version_info, sys._base_executable = ({major}, {minor}, 1), "{path}"
sys.modules["ensurepip"] = None"""
    body = f"""[ "$1" != -V ] || {{ echo Python {version}.1; exit; }}
code=$3; shift 3
exec "{base_python()}" -I -c '{before}
'"$code" "$@\""""
    script(path, body)


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_refuses_another_python(clone: Path, tools: Path, set_up: SetUp, version: str) -> None:
    """PYTHON naming another version is refused with the version it is."""
    stand_in(tools / f"python{version}", version)

    done = set_up(clone, PYTHON=f"python{version}")

    words = ("needs Python 3.11, 3.12 or 3.13", f"PYTHON=python{version}", f"Python {version}.1")
    assert_refused(done, clone, *words)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3.11": "3.11", "python3.12": "3.12", "python3.13": "3.13"}, "python3.11"),
        ({"python3.12": "3.12", "python3.13": "3.13"}, "python3.12"),
        ({"python3.13": "3.13", "python3": "3.12"}, "python3.13"),
        ({"python3": "3.13"}, "python3"),
    ],
)
def test_takes_a_python_on_which_the_lock_was_tried(
    clone: Path, tools: Path, set_up: SetUp, there: dict[str, str], taken: str
) -> None:
    """3.11 before 3.12 and 3.13, then python3. Without venv, Debian's name for it is shown."""
    (tools / "python3.11").unlink()
    for name, version in there.items():
        stand_in(tools / name, version)

    done = set_up(clone)

    words = (f"{tools / taken} has no venv module", f"install python{there[taken]}-venv")
    assert_refused(done, clone, *words)


@pytest.mark.parametrize("tool", TOOLS)
def test_refuses_a_machine_without_a_compiler(
    clone: Path, tools: Path, set_up: SetUp, tool: str
) -> None:
    """Each tool that compiling Horovod takes is missed by name, before anything is downloaded."""
    (tools / tool).unlink()

    done = set_up(clone)

    assert_refused(done, clone, f"no {tool} in PATH", "apt-get install g++ make")


def test_remakes_a_half_finished_venv(clone: Path, set_up: SetUp) -> None:
    """What an interrupted set-up left behind is thrown away, and a failed download says so."""
    half = clone / ".venv" / "lib" / "python3.11" / "site-packages" / "tensorflow"
    half.mkdir(parents=True)
    (clone / ".venv" / "ready").write_text("made by an earlier set-up\n")

    done = set_up(clone)

    assert done.returncode == 1
    assert "[1/5]" in done.stdout
    assert f"The whole output: {clone}/.venv/setup.log" in done.stderr
    assert not half.exists()
    assert not (clone / ".venv" / "ready").exists()
    assert (clone / ".venv" / "setup.log").read_text() != ""


def test_waits_for_another_set_up_of_the_same_checkout(clone: Path, set_up: SetUp) -> None:
    """Two set-ups of one checkout run one after the other, and the second says that it waits."""
    released = clone.parent / "released"
    hold = [
        "flock",
        str(clone / "scripts" / "setup"),
        "sh",
        "-c",
        f"echo held; sleep 2; >{released}",
    ]

    with subprocess.Popen(hold, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        done = set_up(clone)

    assert done.stdout.startswith("another set-up of this checkout is running")
    began = (clone / ".venv" / "pyvenv.cfg").stat().st_mtime_ns
    assert began >= released.stat().st_mtime_ns


def test_settings_for_open_mpi_are_written_once(tmp_path: Path) -> None:
    """Configuring Open MPI a second time replaces the first block and keeps all else."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "bin").mkdir()
    settings = tmp_path / "etc" / "openmpi-mca-params.conf"
    settings.write_text("mine = 1\n")
    for name in ("activate", "activate.fish", "activate.csh"):
        (tmp_path / "bin" / name).write_text("before\n")
    command = [sys.executable, str(ROOT / "scripts" / "configure_mpi.py"), str(tmp_path)]

    subprocess.run(command, check=True)
    once = settings.read_text()
    subprocess.run(command, check=True)

    assert once.startswith("mine = 1\n")
    assert once.count("rmaps_base_oversubscribe = 1") == 1
    assert settings.read_text() == once
    assert (tmp_path / "bin" / "activate").read_text().count("OMPI_ALLOW_RUN_AS_ROOT=1") == 1
