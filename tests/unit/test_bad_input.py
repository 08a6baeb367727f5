"""Bad input gets one message and exit code 2: no traceback, and nothing is written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringside.cli.main
import train
from launch.flags import spec_from_flags
from launch.task import run_process
from ringside.cli.main import COMMANDS
from ringside.drill.faults import FAULTS
from ringside_core.specs import RefusalError, Surroundings

ROOT = Path(train.__file__).resolve().parent

TWO = str(ROOT / "hostfiles" / "two_hosts.template")  # of two slots each
A = "first.example.org"
HOROVOD = ("--backend", "horovod", "--dry-run")
ONE_WORKER = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}
UNDER_HOROVODRUN = {
    "HOROVOD_RANK": "0",
    "HOROVOD_SIZE": "2",
    "HOROVOD_LOCAL_RANK": "0",
    "HOROVOD_LOCAL_SIZE": "2",
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No launcher's variables, and a folder in which everything written is seen."""
    for name in (*UNDER_HOROVODRUN, "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("env", "flags", "words"),
    [
        ({}, ["--backend", "mirored"], "Did you mean 'mirrored'?"),
        ({}, ["-o", "servers=2"], "has no options"),
        ({}, ["--backend", "horovod", "-o", "compresion=fp16"], "Did you mean 'compression'?"),
        ({}, ["--replicas", "2"], "always has one replica"),
        ({}, ["--backend", "mirrored", "--replicas", "0"], "greater than or equal to 1"),
        ({}, ["--epochs", "many"], "unable to parse string as an integer"),
        ({}, ["--precision", "float17"], "float17"),
        ({}, ["--seed", "2147483648"], "2147483647"),
        ({}, ["--warmup-epochs", "2"], "A warm-up needs a rule"),
        ({}, ["--run-dir", "/dev/null/x"], "must be writable"),
        ({"TF_CONFIG": "{"}, [], "must be JSON"),
        ({"TF_CONFIG": json.dumps(ONE_WORKER)}, ["--replicas", "3"], "1 launched"),
        (UNDER_HOROVODRUN, ["--backend", "mirrored"], "runs in one process"),
    ],
)
def test_train_refuses(
    env: dict[str, str],
    flags: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    in_an_empty_folder: Path,
) -> None:
    """`python train.py` with a wrong flag, or under the wrong launcher."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    code = train.main(flags)

    said = capsys.readouterr().err
    assert code == 2
    assert said.count("\n") == 1
    assert words in said
    assert "Traceback" not in said
    assert list(in_an_empty_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--replicas", "x"], "whole numbers"),
        (["compare", "--budget", "2"], "a time with its unit"),
        (["compare", "--launches", "-1"], "greater than or equal to 0"),
        (["compare", "--precision", "2%"], "'float32', 'float64'"),
        (["compare", "--deadline", "inf"], "not a finite number"),
        (["compare", "--backends", "serial:keras=3", "--keras", "3"], "must not be the same run"),
        (["compare", "--tuned", "--trials", "1"], "greater than or equal to 2"),
        (
            ["compare", "--resume", "nowhere", "--tuned", "-w", "a=1", "--no-verify"],
            "Received: --no-verify, --tuned, --workload-option.",
        ),
        (["compare", "--interface", "eth0"], "Add --hostfile"),
        (["compare", "--hostfile", "nowhere"], "must be a readable text file"),
        (["compare", "--resume", "."], "needs the folder of a comparison"),
        (["verify", "--steps", "2"], "--steps"),
        (["compare", "--price", "nan"], "not a finite number"),
        (["compare", "--price", "-2"], "price"),
        (["report", "here", "there", "--price", "2"], "--price is for one comparison"),
        (["doctor", "--hostfile", TWO], "Add --run"),
        (["verify", "--workload", "digit"], "digits"),
        (["allreduce", "--replicas", "1"], "greater than or equal to 2"),
        (["allreduce", "--seconds", "inf"], "not a finite number"),
        # 4 arrays × 2 ranks × 1 EiB
        (["allreduce", "--sizes", "1073741824GiB"], "8,589,934,592 GiB needed"),
        (
            ["launch", *HOROVOD, "--nodes", "2"],
            "--nodes and --sbatch are options of runs in Slurm. Received: --nodes 2.",
        ),
        (
            ["launch", *HOROVOD, "--slurm", "--launcher", "mpirun"],
            "Received: --slurm beside --launcher mpirun.",
        ),
        (
            ["launch", *HOROVOD, "--slurm", "--hostfile", TWO],
            "Received: --slurm beside a hostfile or its flags.",
        ),
        (
            ["launch", *HOROVOD, "--hostfile", TWO, "--servers-on", A],
            f"Received: --servers-on {A} --backend horovod.",
        ),
        (["launch", "--hostfile", "nowhere"], "readable text file"),
        (["trace", "--backends", "parameter_server"], "must have processes that make every step"),
        (["trace", "--comparison", "nowhere"], "nowhere"),
        (["launch", "--restarts", "1", "--save", "record"], "needs checkpoints"),
        (["report", "nowhere"], "nowhere/results.json"),
        (["report", "a", "b", "c"], "unexpected extra argument"),
        (["verify-report", "nowhere"], "nowhere/results.json"),
        (["verify-report", "/dev/null"], "Not a directory"),
        (["compar"], "`ringside --help`"),
        (["compare", "--launches", "many"], "Received: many. `ringside compare --help`"),
        (["compare", "--launchs", "1"], "--launches"),
        (["lab", "status", "--nope"], "`ringside lab status --help`"),
    ],
)
def test_ringside_refuses(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], in_an_empty_folder: Path
) -> None:
    """`ringside` with a wrong flag, name or file."""
    code = ringside.cli.main.run(arguments)

    out, said = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert said.count("\n") == 1
    assert words in said
    assert "Traceback" not in said
    assert list(in_an_empty_folder.iterdir()) == []


@pytest.fixture
def nothing_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends at once, and completed."""
    monkeypatch.setattr(train, "_train", lambda *_: None)


@pytest.mark.usefixtures("nothing_trained")
def test_a_named_run_dir_with_ones_own_record_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of other ranks may be there already, because ranks do not start at once."""
    records = tmp_path / "run" / "records"
    records.mkdir(parents=True)
    (records / "rank-1.json").write_text("of another rank")
    flags = ["--run-dir", str(tmp_path / "run")]

    assert train.main(flags) == 0
    before = (records / "rank-0.json").read_text()
    capsys.readouterr()
    assert train.main(flags) == 2

    assert "A run needs a folder of its own" in capsys.readouterr().err
    assert (records / "rank-0.json").read_text() == before
    assert (records / "rank-1.json").read_text() == "of another rank"


def test_a_second_launch_says_how_to_go_on(
    in_an_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of the first run is touched, and both ways out are named."""
    spec = in_an_empty_folder / "first" / "spec.json"
    spec.parent.mkdir()
    spec.write_text("of the first")

    assert ringside.cli.main.run(["launch", "--backend", "serial", "--run-dir", "first"]) == 2

    text = capsys.readouterr().err
    assert "--resume auto" in text
    assert "--run-dir with another" in text
    assert spec.read_text() == "of the first"


def test_a_script_is_named_where_it_is_refused(
    in_an_empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a run that a launcher has started too, though there the program is train.py."""
    for workload, named in (("mine.py --rate 3", "mine.py"), ("digits", Path(sys.argv[0]).name)):
        spec = spec_from_flags(Surroundings()).replace(workload=workload)

        def refuse(*_: object) -> None:
            raise RefusalError("No.", received="this")

        assert run_process(refuse, spec, Surroundings(), Path("run"), aloud=False) == 2
        assert f"{named}: No. Received: this." in capsys.readouterr().err


def test_a_terminal_that_knows_only_ascii() -> None:
    """What it cannot show becomes a question mark."""
    program = "from ringside_core.text import print_anything as p; p(); print('mirrored \u00d72')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_readable(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 80 columns: an example, and at most fifteen options before the rare ones."""
    monkeypatch.setenv("COLUMNS", "80")
    assert ringside.cli.main.run([command, "--help"]) == 0

    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    if command != "lab":  # its commands have their own
        assert "  Example: ringside" in said
        if command == "drill":  # what the example names is there
            assert said.partition("--faults ")[2].split()[0] in FAULTS
        common = said.partition("\nOptions:\n")[2].partition("\nMore options:\n")[0]
        assert 1 <= len(re.findall("^  -", common, re.MULTILINE)) <= 15


@pytest.mark.parametrize(
    ("shell", "line", "offered"),
    [
        ("bash", {"COMP_WORDS": "ringside compare --bud", "COMP_CWORD": "2"}, "--budget"),
        ("bash", {"COMP_WORDS": "ringside comp", "COMP_CWORD": "1"}, "compare"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "ringside verify --expl"}, "--explain"),
    ],
)
def test_a_shell_completes(
    shell: str,
    line: dict[str, str],
    offered: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands, and the options of the one that is being typed."""
    for name, value in {"_RINGSIDE_COMPLETE": f"complete_{shell}", **line}.items():
        monkeypatch.setenv(name, value)

    assert ringside.cli.main.run([]) == 0

    assert offered in capsys.readouterr().out
