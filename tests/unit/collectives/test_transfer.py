"""A plain transfer between two ends, here over loopback, and who ends when the other does."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launch import Site
from ringside.collectives import link, transfer
from ringside.collectives.link import measure_links
from ringside_core.specs import Host, Placement, RefusalError

TWO = Placement(hosts=(Host(name="here"), Host(name="there")), interface="lo")


@pytest.fixture
def site() -> Site:
    """Two names of this machine: no ssh."""
    return dataclasses.replace(Site.here(), names=frozenset({"here", "there"}))


@pytest.fixture
def left_over() -> Callable[[], list[str]]:
    """Processes that this one has started and that still run."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    return lambda: [
        " ".join(child.cmdline())
        for child in psutil.Process().children(recursive=True)
        if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE
    ]


def test_each_host_sends_to_the_next(site: Site, left_over: Callable[[], list[str]]) -> None:
    """A ring of two: each tool measures both ways, and no process stays."""
    found = measure_links(TWO, site, seconds=0.2, tools=("tcp",))

    assert [(one.sender, one.receiver, one.tool) for one in found] == [
        ("here", "there", "tcp"),
        ("there", "here", "tcp"),
    ]
    assert all(one.seconds >= 0.2 for one in found)
    assert all(one.bits_per_s == one.bytes * 8 / one.seconds for one in found)
    assert left_over() == []


def test_one_host_has_no_link(site: Site) -> None:
    """No process is started."""
    assert measure_links(Placement(hosts=(Host(name="here"),)), site) == ()
    assert measure_links(Placement(), site) == ()


def test_what_came_is_counted_after_the_warm_up() -> None:
    """The first chunk starts the clock; only what comes after it counts."""
    ours, theirs = socket.socketpair()
    go_on = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        theirs.sendall(bytes(1000))
        go_on.wait(30)
        while True:
            try:
                sent += theirs.send(bytes(500))
            except OSError:
                return

    sender = threading.Thread(target=send)
    sender.start()
    with ours:
        clock = threading.Timer(0.05, go_on.set)
        clock.start()
        count, seconds = transfer.counted(ours, 0.0, 0.1)
    theirs.close()
    sender.join()

    assert 0 < count <= sent  # the first thousand are not in it
    assert seconds >= 0.1


def test_a_sender_names_its_congestion_control() -> None:
    """Before the first byte is taken; the kernel's file says what a connection gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, port = server.getsockname()
        with subprocess.Popen(
            (sys.executable, "-I", "-S", link.SCRIPT, "send", address, str(port)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            try:
                said = json.loads(process.stdout.readline())
            finally:
                process.kill()

    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    assert said == {"congestion_control": default}


def test_a_sender_that_goes_is_told() -> None:
    """Half a transfer is no measurement."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"x")
    theirs.close()

    with ours, pytest.raises(SystemExit, match="the sender is gone"):
        transfer.counted(ours, 0.0, 1.0)


def test_an_end_that_fails_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has its last words, and the other end is stopped too."""
    monkeypatch.setattr(link, "WARM_UP_S", 0.1)
    placement = TWO.replace(interface="nothing0")

    with pytest.raises(RefusalError, match=r"there: OSError: \[Errno 19\] No such device"):
        measure_links(placement, site, seconds=0.1)


# An ssh without a network, to a host whose login script says something.
TALKING_SSH = '#!/bin/sh\nfor last; do :; done\n{talk}\nexec sh -c "exec $last"\n'
# One that goes without closing what it says its errors by: its child has it, too.
HOLDING_SSH = "#!/bin/sh\necho gone >&2\nsleep 3600 >&- & echo $! > $0.pid\nexit 7\n"
# One that closes its output and stays.
STAYING_SSH = "#!/bin/sh\necho 'no more' >&2\nexec sleep 3600 >&-\n"


@pytest.fixture
def by_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Have another ssh, which is what each `there` is reached by."""

    def have(text: str) -> Path:
        (tmp_path / "ssh").write_text(text)
        (tmp_path / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "ssh"

    return have


@pytest.mark.parametrize(
    "talk", ["echo Welcome", "printf hello", "printf '{'", "echo '{a}'", "echo '{\"port\": 1}'"]
)
def test_a_login_script_may_talk(
    talk: str, site: Site, by_ssh: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text, in any form, comes before the text of the program."""
    monkeypatch.setattr(link, "WARM_UP_S", 0.1)
    monkeypatch.setattr(link, "PATIENCE_S", 10.0)
    by_ssh(TALKING_SSH.format(talk=talk))
    far = dataclasses.replace(site, names=frozenset({"here"}))

    found = measure_links(TWO, far, seconds=0.1, tools=("tcp",))

    assert [one.sender for one in found] == ["here", "there"]


@pytest.mark.parametrize(("text", "words"), [(HOLDING_SSH, "gone"), (STAYING_SSH, "no more")])
def test_last_words_are_not_waited_for(
    text: str,
    words: str,
    site: Site,
    by_ssh: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process may hold the pipe open, or the program may not end."""
    monkeypatch.setattr(link, "LAST_WORDS_S", 0.3)
    ssh = by_ssh(text)
    far = dataclasses.replace(site, names=frozenset({"here"}))

    try:
        with pytest.raises(RefusalError, match=f"there: {words}"):
            measure_links(TWO, far, seconds=0.1, tools=("tcp",))
    finally:
        holder = Path(f"{ssh}.pid")
        if holder.exists():
            os.kill(int(holder.read_text()), signal.SIGKILL)


def test_iperf3_gives_up(tmp_path: Path) -> None:
    """If its peer never comes, it ends by itself, even with its standard input open."""
    (tmp_path / "iperf3").write_text("#!/bin/sh\nexec sleep 3600\n")
    (tmp_path / "iperf3").chmod(0o755)
    program = (
        "from ringside.collectives import transfer; transfer.IPERF3_PATIENCE_S = 0.2; "
        "transfer.main(['iperf3-receive', '0.1', '0.1', 'lo'])"
    )
    with subprocess.Popen(
        (sys.executable, "-c", program),
        stdin=subprocess.PIPE,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as process:
        assert process.wait(30) == 1


def test_an_end_ends_with_its_standard_input() -> None:
    """As when the connection that started it is lost; its port is free again."""
    process = subprocess.Popen(
        (sys.executable, "-I", "-S", link.SCRIPT, "receive", "0", "1", "lo"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        said = json.loads(process.stdout.readline())

        process.stdin.close()

        assert process.wait(30) == 1
    assert said["address"] == "127.0.0.1"
    with socket.socket() as probe:
        probe.bind((said["address"], said["port"]))
