"""The lab's hosts are hosts; and nothing of them is left when they are gone."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ringside.cli import main
from ringside.lab import host as processes_of
from ringside.lab import share
from ringside.lab.host import processes
from ringside.lab.lab import Lab, take_down
from ringside.lab.names import LabHost
from ringside_core.specs import RefusalError
from tests.nightly import daily, nightly
from tests.waiting import wait_until

Remote = Callable[..., "subprocess.CompletedProcess[str]"]
STREAM = Path(__file__).with_name("stream.py")
MIB = 1 << 20
HOSTS = 4  # of the lab of this file (conftest.py)


def ringside(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """`ringside lab …`, as a person types it."""
    return subprocess.run(
        [sys.executable, "-m", "ringside.cli.main", "lab", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def left_of(name: str) -> list[str]:
    """What is on this machine of a lab, looked up without the lab's own code."""

    def listed(*command: str) -> list[str]:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [line for line in text.splitlines() if re.search(rf"\brs-{name}\b", line)]

    folders = ("/run/netns", "/run/ringside-lab", "/etc/netns", "/etc/ssh/ssh_config.d")
    found = [
        f"{folder}/{one}"
        for folder in folders
        if os.path.isdir(folder)
        for one in os.listdir(folder)
        if re.search(rf"(^|-){name}(\.conf|-\d+)?$", one)
    ]
    found += [str(one) for one in Path("/sys/fs/cgroup").glob(f"*/rs-{name}-*")]
    found += [str(one) for one in Path("/sys/fs/cgroup").glob(f"rs-{name}-*")]
    found += listed("ip", "netns", "list") + listed("ip", "-br", "link")
    found += listed("ip", "route", "show", "table", "all")
    hosts = Path("/etc/hosts").read_text().splitlines()
    found += [line for line in hosts if re.search(rf"\b{name}[0-9]*\b", line)]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if f"/ringside-lab/{name}/" in line or f"rs-{name}-" in line:
                found.append(line)
    return found


def lives(pid: int) -> bool:
    """Whether a process is there that is more than an entry which its parent has not read yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def streaming(sender: LabHost, receiver: LabHost) -> Iterator[Callable[[int], float]]:
    """A TCP stream between two hosts; the function's result: seconds in which so much arrived."""

    def start(host: LabHost, *arguments: str) -> "subprocess.Popen[str]":
        command = ["ssh", "-o", "BatchMode=yes", host.name, sys.executable, str(STREAM), *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    with contextlib.ExitStack() as stack:
        into = stack.enter_context(start(receiver, "receive", receiver.address))
        assert into.stdin
        assert into.stdout
        port = into.stdout.readline().strip()
        stack.enter_context(start(sender, "send", receiver.address, port))
        stack.callback(into.stdin.close)  # ends the receiver, and so the sender

        def arrived(count: int) -> float:
            assert into.stdin
            assert into.stdout
            into.stdin.write(f"{count}\n")
            return float(into.stdout.readline())

        yield arrived


def test_each_host_has_a_name_an_address_and_its_own_hosts_file(lab: Lab, remote: Remote) -> None:
    """Under its own name a host finds its own address: Horovod would else use 127.0.0.1."""
    for host in lab.hosts:
        script = "import socket as s; print(s.gethostname(), s.gethostbyname(s.gethostname()))"
        seen = remote(host.name, [sys.executable, "-c", script]).stdout.split()
        addresses = remote(host.name, ["ip", "-br", "-4", "address", "show", lab.interface]).stdout

        assert seen == [host.name, host.address]
        assert addresses.split()[2] == f"{host.address}/24"
    assert len({host.address for host in lab.hosts}) == HOSTS


def test_hosts_and_this_machine_reach_each_other_without_a_password(
    lab: Lab, remote: Remote
) -> None:
    """By name, from here and from one to the next; what a launcher needs."""
    for first, second in zip(lab.hosts, (*lab.hosts[1:], lab.hosts[0]), strict=True):
        through = remote(first.name, ["ssh", "-o", "BatchMode=yes", second.name, "hostname"])

        assert (through.stdout, through.stderr) == (f"{second.name}\n", "")


def test_a_host_sees_its_own_processes_memory_and_cores_only(lab: Lab, remote: Remote) -> None:
    """And has the disk of all."""
    first, second = lab.hosts[:2]
    mark = f"/dev/shm/ringside-{os.getpid()}"

    remote(first.name, ["touch", mark])
    ps = remote(second.name, ["ps", "-e", "-o", "pid=,args="]).stdout
    memory = remote(second.name, ["ls", mark])
    cores = remote(second.name, ["nproc"]).stdout

    assert first.name not in ps
    assert ps.split()[0] == "1"
    assert len(ps.splitlines()) < 10
    assert memory.returncode != 0
    assert not os.path.exists(mark)
    assert int(cores) == len(second.affinity)
    assert remote(second.name, ["cat", __file__]).stdout == Path(__file__).read_text()


def test_a_host_gets_no_more_than_its_share_of_cores(other_name: str, remote: Remote) -> None:
    """CPU time lasts at least as long as the share says. A small one: a busy machine gives more."""
    lab = Lab.up(name=other_name, hosts=1, cores=0.1)
    if not lab.limited:
        pytest.skip("this kernel gives no cgroup that limits CPU time")
    script = (
        "import time; t, w = time.process_time(), time.monotonic()\n"
        "while time.process_time() - t < 0.5: pass\n"
        "print(time.monotonic() - w)"
    )

    seconds = float(remote(lab.hosts[0].name, [sys.executable, "-c", script]).stdout)

    # What is over a period's quota is taken from the next: 10 % is far more than it can be wrong.
    assert seconds >= 0.9 * 0.5 / 0.1


@pytest.mark.parametrize("slow", ["sender", "receiver"])
def test_a_rate_holds_in_both_directions_and_changes_under_way(
    lab: Lab, slow: str, remote: Remote
) -> None:
    """What arrives takes as long as the bits of it take at that rate: at least, that is physics."""
    sender, receiver = lab.hosts[:2]
    host = {"sender": sender, "receiver": receiver}[slow].name
    count, had_arrived = 4 * MIB, MIB  # what may be in the receiver's memory at the change

    with streaming(sender, receiver) as arrived:
        arrived(MIB)
        try:
            lab.set_rate(host, "20mbit")
            seconds = arrived(count)
            seen = lab.look(lab.host(host))
        finally:
            lab.set_rate(host, "1gbit")
        arrived(MIB)

    assert seconds >= (count - had_arrived) * 8 / 20e6
    assert (seen.out_bits_per_s, seen.in_bits_per_s) == (20_000_000, 20_000_000)
    assert lab.look(lab.host(host)).out_bits_per_s == 1_000_000_000


def test_a_cut_link_swallows_packets_and_a_mended_one_goes_on(lab: Lab, remote: Remote) -> None:
    """No reset, no refusal: a connection from before lives on afterwards."""
    sender, receiver = lab.hosts[2:]
    script = f"import socket; socket.create_connection(({receiver.address!r}, 22), timeout=1)"

    with streaming(sender, receiver) as arrived:
        arrived(MIB)
        try:
            lab.cut(receiver.name)
            new = remote(sender.name, [sys.executable, "-c", script])
            cut = [lab.look(host).cut for host in lab.hosts]
        finally:
            lab.mend(receiver.name)
        arrived(MIB)

    assert "timed out" in new.stderr or "No route to host" in new.stderr
    assert cut == [False, False, False, True]
    assert not lab.look(receiver).cut


def test_status_shows_the_hosts(lab: Lab) -> None:
    """By command, as the test above sees them by the library."""
    shown = ringside("status", "--name", lab.name)

    assert shown.returncode == 0, shown.stderr
    assert all(host.name in shown.stdout and host.address in shown.stdout for host in lab.hosts)


def test_up_twice_is_refused(lab: Lab, remote: Remote) -> None:
    """And leaves the lab that is there as it is."""
    again = ringside("up", "--name", lab.name)

    assert again.returncode == 2
    assert again.stderr.startswith("ringside: A lab of that name is already up")
    assert f"ringside lab down --name {lab.name}" in again.stderr
    assert remote(lab.hosts[0].name, ["true"]).returncode == 0


def test_down_leaves_nothing_and_other_labs_alone(
    lab: Lab, other_name: str, remote: Remote
) -> None:
    """Two labs at once; one goes with all that ran on it."""
    made = ringside("up", "--name", other_name, "--hosts", "2", "--rate", "10mbit")
    assert made.returncode == 0, made.stderr
    sleeper = subprocess.Popen(["ssh", "-n", f"{other_name}1", "exec", "-a", "x", "sleep", "1000"])
    other = Lab.find(other_name)
    assert {host.address for host in other.hosts}.isdisjoint(host.address for host in lab.hosts)
    remote(f"{other_name}2", "setsid --fork sleep 1000 >/dev/null 2>&1")
    pids = [pid for host in other.hosts for pid in processes(host.namespace)]
    assert left_of(other_name)

    down = ringside("down", "--name", other_name)

    sleeper.wait(timeout=60)
    assert (down.returncode, down.stdout) == (0, f"lab {other_name} is down\n")
    assert left_of(other_name) == []
    assert not any(lives(pid) for pid in pids)
    assert remote(lab.hosts[3].name, ["ssh", lab.hosts[0].name, "true"]).returncode == 0
    for host in lab.hosts:  # a hosts file of its own still, after another lab changed ours
        assert "127.0.0.1 localhost\n" in remote(host.name, ["head", "-1", "/etc/hosts"]).stdout


def test_down_without_a_lab_says_so(other_name: str) -> None:
    """It is what was asked for: exit code 0. A status without a lab is 1."""
    down = ringside("down", "--name", other_name)
    status = ringside("status", "--name", other_name)

    assert (down.returncode, down.stdout) == (0, f"no lab {other_name} is up\n")
    assert status.returncode == 1
    with pytest.raises(RefusalError, match="no lab of that name"):
        Lab.find(other_name)


MOMENTS = {
    "folder": "/run/ringside-lab/{0}",
    "bridge": "/sys/class/net/rs-{0}",
    "namespaces": "/run/netns/rs-{0}-3",
    "keys": "/run/ringside-lab/{0}/{0}2.key",
    "ssh": "/etc/ssh/ssh_config.d/ringside-{0}.conf",
    "first host": "/run/ringside-lab/{0}/{0}1.log",
    "last host": "/run/ringside-lab/{0}/{0}3.log",
}


def stopped_at(moment: str, name: str, number: signal.Signals) -> "subprocess.Popen[str]":
    """An `up` that gets this signal when the file of that moment is there."""
    path = MOMENTS[moment].format(name)
    up = subprocess.Popen(
        [sys.executable, "-m", "ringside.cli.main", "lab", "up", "--name", name, "--hosts", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < deadline
        assert up.poll() is None, up.communicate()
    up.send_signal(number)
    return up


# Each moment leaves one kind of thing more, and the last one leaves all.
@pytest.mark.parametrize("moment", daily(MOMENTS, ("folder", "last host").__contains__))
def test_down_removes_what_a_killed_up_has_left(other_name: str, moment: str) -> None:
    """kill -9 runs no `finally`: everything is found by name."""
    up = stopped_at(moment, other_name, signal.SIGKILL)
    up.communicate(timeout=60)
    assert left_of(other_name)
    assert ringside("up", "--name", other_name).returncode == 2

    down = ringside("down", "--name", other_name)

    assert down.returncode == 0, down.stderr
    assert left_of(other_name) == []


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("namespaces", signal.SIGINT),
        ("last host", signal.SIGTERM),
        nightly("namespaces", signal.SIGTERM),
        nightly("last host", signal.SIGINT),
    ],
)
def test_a_stopped_up_takes_everything_down(
    other_name: str, moment: str, number: signal.Signals
) -> None:
    """Ctrl-C and kill."""
    up = stopped_at(moment, other_name, number)

    _, said = up.communicate(timeout=60)

    assert up.returncode == 128 + number
    assert "Traceback" not in said
    assert left_of(other_name) == []


def test_down_ends_a_process_that_joins_after_it_looked(
    other_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was just being started when its `up` was stopped: seen at the second look."""
    host = LabHost(name=f"{other_name}1", index=1, address="10.77.0.1", cores=0.5, affinity=(0,))
    joined = share.limit(host)
    if joined is None:
        pytest.skip("this machine has no cgroup cpu")
    late = subprocess.Popen(["sleep", "1000"])
    joined.write_text(str(late.pid))
    look, early = processes_of._all_of, [set[int]()]
    monkeypatch.setattr(processes_of, "_all_of", lambda name: early.pop() if early else look(name))

    try:
        assert take_down(other_name)
        assert late.wait(timeout=60) == -signal.SIGKILL
    finally:
        late.kill()
    assert left_of(other_name) == []


def test_a_host_whose_first_process_was_killed_is_dead(other_name: str) -> None:
    """As if its plug were pulled: all of it ends; status says so; down removes it."""
    with contextlib.ExitStack() as stack:
        lab = Lab.up(name=other_name, hosts=2)
        stack.callback(take_down, other_name)
        host = lab.hosts[1]
        sleeper = subprocess.Popen(["ssh", "-n", host.name, "sleep 1000"])
        while "sleep" not in processes(host.namespace).values():
            assert sleeper.poll() is None
        (first,) = (pid for pid, name in processes(host.namespace).items() if name == "unshare")

        os.kill(first, signal.SIGKILL)

        sleeper.terminate()
        sleeper.wait()
        wait_until(lambda: not processes(host.namespace), seconds=60)
        assert not lab.look(host).sshd
        assert lab.look(lab.hosts[0]).sshd
        assert "dead" in ringside("status", "--name", other_name).stdout
    assert left_of(other_name) == []


def test_hosts_that_do_not_reach_each_other_are_refused(other_name: str) -> None:
    """A firewall that drops what is forwarded; and what was made by then is taken down."""
    if not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        pytest.skip("this kernel's firewall does not look into bridges")
    table = "ringside_test"
    drops = f"iifname rs-{other_name} oifname rs-{other_name} drop"
    try:
        nft(
            f"add table ip {table}; add chain ip {table} c {{ type filter hook forward priority 0; "
            f"}}; add rule ip {table} c {drops}"
        )
        made = ringside("up", "--name", other_name, "--hosts", "2")
    finally:
        nft(f"delete table ip {table}")

    assert made.returncode == 2
    assert f"{other_name}2 does not answer {other_name}1" in made.stderr
    assert left_of(other_name) == []


def nft(commands: str) -> None:
    """Change the firewall, or skip where there is no tool for it."""
    try:
        subprocess.run(["nft", commands], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("nft is not installed (Debian: nftables)")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["up", "--name", "Lab"], "lower-case letters"),
        (["up", "--rate", "fast"], "A rate must read like"),
        (["up", "--hosts", "0"], "1 to 64 hosts"),
        (["up", "--cores", "1000"], "more cores than the machine"),
        (["up", "--congestion-control", "best"], "that this machine's kernel has"),
        (["cut", "lab"], "the lab's name and its number"),
        (["cut", "nosuchlab1"], "There is no lab of that name"),
        (["rate", "1gbit", "--name", "nosuchlab"], "There is no lab of that name"),
        (["down", "--name", "../x"], "lower-case letters"),
    ],
)
def test_bad_input_is_refused(
    needs_a_lab: None, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, exit code 2."""
    code = main.run(["lab", *flags])

    said = capsys.readouterr().err
    assert code == 2
    assert words in said
    assert "Traceback" not in said
