"""Many hosts asked at once: each answers or has a reason, and nothing of the asking is left."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launch.remote import ssh
from launch.remote.ssh import NoAnswer, ask_all, remote_command
from tests.unit.launch.reached import DIRECT, FAREWELL, reached_by
from tests.waiting import wait_until

LIMIT_S = 20.0  # for those that answer at once, on a busy machine
Asked = Callable[..., dict[str, str | NoAnswer]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What hosts say to a line of shell, over this `ssh`."""

    def asked(
        script: str, *hosts: str, line: str = "echo me", limit_s: float = LIMIT_S
    ) -> dict[str, str | NoAnswer]:
        reached_by(script, tmp_path, monkeypatch)
        return ask_all({host: ("sh", "-c", line) for host in hosts}, limit_s=limit_s)

    return asked


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """No process that was started, not even a zombie, and no open file."""

    def state() -> tuple[list[psutil.Process], list[str]]:
        return psutil.Process().children(recursive=True), sorted(os.listdir("/proc/self/fd"))

    before = state()
    yield
    assert state() == before


def must_end(file: Path) -> None:
    """The process whose number is in the file; what was killed takes a moment."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(file.read_text()))
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, seconds=10)


@pytest.mark.parametrize(
    "login",
    [
        "echo ready; echo 5; echo '{}'",
        "printf 'no end of line'",
        "head -c 300000 /dev/zero",
        "set -x",
        "head -c 300000 /dev/zero >&2",
    ],
)
def test_a_login_shell_that_talks(login: str, asked: Asked) -> None:
    """Its text before the command is not part of the answer, in any form or amount."""
    script = DIRECT.replace("exec sh", f"{login}; exec sh")

    assert asked(script, "a", line="echo me; echo ready") == {"a": "me\nready\n"}


def test_no_terminal(tmp_path: Path) -> None:
    """Whatever ~/.ssh/config says, none is used: it would echo our input to a command."""
    if shutil.which("ssh") is None:
        pytest.skip("no ssh")
    (tmp_path / "config").write_text("RequestTTY force\n")
    program, *words = remote_command("a", ("true",))

    said = subprocess.run(
        [program, "-G", "-F", str(tmp_path / "config"), *words],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "requesttty false" in said.stdout.splitlines()


def test_each_host_has_its_own_answer(asked: Asked) -> None:
    """By its name; words of a command arrive unchanged, and so do bytes that are no text."""
    script = f'case "$*" in *" a "*) export HOST=a;; *" b "*) export HOST=b;; esac; {DIRECT}'

    answers = asked(script, "a", "b", line="""printf "$HOST 'x  y' \\$z \\351" """)

    assert answers == {"a": "a 'x  y' $z \ufffd", "b": "b 'x  y' $z \ufffd"}


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("echo me", "me\n"),
        ("echo late; exit 3", NoAnswer(why="exit 3")),
        ("echo first >&2; echo last >&2; exit 3", NoAnswer(why="last")),
        ("printf 'caf\\351' >&2; exit 1", NoAnswer(why="caf\ufffd")),
        (
            "head -c 300000 /dev/zero | tr '\\0' '\\n' >&2; echo last >&2; exit 1",
            NoAnswer(why="last"),
        ),
    ],
)
def test_a_login_shell_that_talks_before_and_afterwards(
    line: str, answer: str | NoAnswer, asked: Asked
) -> None:
    """The exit code is the command's, or the last line of its own errors; both outputs end."""
    script = FAREWELL.replace("sh -c", "echo 'bash: fortune: not found' >&2; sh -c")

    assert asked(script, "a", line=line) == {"a": answer}


def test_a_command_that_never_began(asked: Asked) -> None:
    """A login shell's text is no answer, even with exit code 0."""
    assert asked("echo me; exit 0", "a") == {"a": NoAnswer(why="exit 0")}


def test_what_ssh_has_started_ends_with_it(asked: Asked, tmp_path: Path) -> None:
    """Its ProxyCommand holds the pipes too, so it is ended together with a silent ssh."""
    answers = asked(f"sleep 3600 & echo $! >{tmp_path}/pid; wait", "a", limit_s=2.0)

    assert answers == {"a": NoAnswer(why="no answer within 2 s")}
    must_end(tmp_path / "pid")


def test_what_outlives_ssh_holds_nothing_up(asked: Asked, tmp_path: Path) -> None:
    """The master of shared connections (ControlPersist) may stay; Ringside does not wait for it."""
    pid = tmp_path / "pid"
    master = f"setsid sh -c 'echo $$ >{pid}; exec sleep 3600' >/dev/null &"
    begun = f"until [ -s {pid} ]; do sleep 0.01; done"

    for end, answer in ((DIRECT, "me\n"), ("exit 3", NoAnswer(why="exit 3"))):
        assert asked(f"{master} {begun}; {end}", "a") == {"a": answer}
        stayed = psutil.Process(int(pid.read_text()))
        assert stayed.status() != psutil.STATUS_ZOMBIE
        stayed.kill()
        pid.unlink()


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize(
    ("number", "raised"), [("INT", KeyboardInterrupt), ("TERM", SystemExit), ("HUP", SystemExit)]
)
def test_a_signal_ends_the_asking(
    number: str, raised: type[BaseException], asked: Asked, tmp_path: Path
) -> None:
    """At once, and repeated signals change nothing."""
    came = f"kill -{number} $PPID; kill -{number} $PPID"
    # The one that the signal comes from has seen the other.
    seen = f"until [ -s {tmp_path}/pid ]; do sleep 0.01; done"
    hang = f"echo $$ >{tmp_path}/pid; exec sleep 3600"
    script = f'case "$*" in *" b "*) {seen}; {came}; exec sleep 3600;; *) {hang};; esac'
    before = signal.getsignal(signal.SIGINT)
    began = time.monotonic()

    with pytest.raises(raised):
        asked(script, "a", "b")

    assert time.monotonic() - began < LIMIT_S / 2
    assert signal.getsignal(signal.SIGINT) is before
    must_end(tmp_path / "pid")


# As OpenSSH 9.2 words them.
SAID = {
    "ssh: Could not resolve hostname b: Name or service not known": "its name is not known here",
    "ssh: connect to host b port 22: Connection refused": "no ssh server answers there",
    "ssh: connect to host b port 22: Connection timed out": "it cannot be reached",
    "ssh: connect to host b port 22: No route to host": "it cannot be reached",
    "me@b: Permission denied (publickey,password).": "it asks for a password",
    "me@b: Permission denied (publickey).": "it refuses the key",
    "No ED25519 host key is known for b.\nHost key verification failed.": "its host key is not kno",
    "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.": (
        "its host key is not the one known here"
    ),
    "bash: line 1: /venv/bin/python: No such file or directory": "no /venv/bin/python there",
    "/usr/bin/python: can't open file '/r/launch/probe.py': [Errno 2] No such file or directory": (
        "no checkout of Ringside there"
    ),
    "Traceback (most recent call last):\nKeyError: 'names'": "KeyError: 'names'",
    "": "exit 255",
}


@pytest.mark.parametrize("words", SAID)
def test_what_ssh_complains_of(words: str) -> None:
    """Each failure of ssh has its own message and advice."""
    assert ssh.complaint("b", 255, words, "/venv/bin/python").startswith(SAID[words])
