"""Names of the hosts and the way to reach them: /etc/hosts, keys, ssh's configuration."""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ringside.lab.command import run
from ringside.lab.names import LabHost, folder_of, lab_of_numbered
from ringside_core.specs import RefusalError, whole_file

HOSTS = Path("/etc/hosts")
SSH = Path("/etc/ssh/ssh_config.d")
NETNS = Path("/etc/netns")  # what `ip netns exec` lays over /etc
_CONFIG = re.compile(r"ringside-([a-z]+)\.conf")
_BEGIN = re.compile(r"^# ringside lab ([a-z]+): begin$", re.MULTILINE)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock, so that one lab at a time is made or removed; it ends with this process."""
    if not SSH.is_dir():
        raise RefusalError(
            "ssh must read its configuration from a folder, so that it can learn of the lab.",
            received=f"no {SSH}",
            advice=f"Make it, and put `Include {SSH}/*.conf` first into /etc/ssh/ssh_config.",
        )
    folder = os.open(SSH, os.O_RDONLY)  # every lab writes into this folder, and none removes it
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _marks(name: str) -> tuple[str, str]:
    return f"# ringside lab {name}: begin", f"# ringside lab {name}: end"


def with_block(text: str, name: str, lines: Sequence[str]) -> str:
    """A hosts file with the lab's lines at its end; earlier lines of the lab are removed."""
    begin, end = _marks(name)
    rest = without_block(text, name)
    if rest and not rest.endswith("\n"):
        rest += "\n"
    return rest + "\n".join((begin, *lines, end)) + "\n"


def without_block(text: str, name: str) -> str:
    """A hosts file without the lab's lines; everything else as it was."""
    begin, end = map(re.escape, _marks(name))
    return re.sub(rf"^{begin}\n(?:.*\n)*?{end}(?:\n|\Z)", "", text, flags=re.MULTILINE)


def names_in(text: str) -> set[str]:
    """Every name that a hosts file gives an address."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return {name for words in lines for name in words[1:]}


def write_hosts(text: str) -> None:
    """Write /etc/hosts in place, with one write.

    A rename would remove what other labs' hosts have mounted on this file, because the kernel
    removes mounts on a file that is replaced. In a container the file is itself a mount.
    """
    if text == HOSTS.read_text():
        return
    body = text.encode()
    file = os.open(HOSTS, os.O_WRONLY)
    try:
        os.pwrite(file, body, 0)
        os.ftruncate(file, len(body))
    finally:
        os.close(file)


def refuse_taken(name: str, hosts: Sequence[LabHost]) -> None:
    """Refuse host names that /etc/hosts already gives to other machines: its first line wins."""
    taken = names_in(without_block(HOSTS.read_text(), name)) & {host.name for host in hosts}
    if taken:
        raise RefusalError(
            f"{HOSTS} must not name the lab's hosts already.",
            received=", ".join(sorted(taken)),
            advice="Choose another --name, or remove those lines.",
        )


def write_logins(name: str, head_address: str, hosts: Sequence[LabHost]) -> None:
    """Write keys, each sshd's configuration, and the files of each host and of this machine."""
    folder = folder_of(name)
    _make_key(folder / "key")
    (folder / "authorized_keys").write_text((folder / "key.pub").read_text())
    known = []
    lines = [f"{host.address} {host.name}" for host in hosts]
    # This machine has its own name there too, because it plays the login node.
    head = f"{head_address} {os.uname().nodename}"
    for host in hosts:
        key = folder / f"{host.name}.key"
        _make_key(key)
        public = " ".join((folder / f"{key.name}.pub").read_text().split()[:2])
        known.append(f"{host.name},{host.address} {public}\n")
        (folder / f"{host.name}.sshd").write_text(_sshd_config(host, folder))
        own = NETNS / host.namespace
        own.mkdir(parents=True, exist_ok=True)
        for path in (NETNS, own):
            path.chmod(0o755)
        _publish(own / "hosts", "\n".join(["127.0.0.1 localhost", *lines, head]) + "\n")
        # No name server, so that a name that is in no hosts file is unknown at once.
        _publish(own / "resolv.conf", "# a host of a ringside lab: names are in /etc/hosts\n")
    (folder / "known_hosts").write_text("".join(known))
    _publish(SSH / f"ringside-{name}.conf", _ssh_config(name, hosts, folder))
    write_hosts(with_block(HOSTS.read_text(), name, lines))


def _publish(path: Path, text: str) -> None:
    """Write a file whole, for everybody to read, whatever the umask."""
    # ssh ends for each user who may not read a part of its configuration, whatever its host.
    with whole_file(path) as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(text.encode())


def _make_key(path: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ringside-lab", "-f", str(path))


def _sshd_config(host: LabHost, folder: Path) -> str:
    # MaxStartups, MaxSessions: a launcher opens one connection per process, all at once.
    # StrictModes: the umask may let a group write the key's file, but no other user can reach its
    # folder.
    return f"""\
ListenAddress {host.address}:22
HostKey {folder / host.name}.key
AuthorizedKeysFile {folder}/authorized_keys
PermitRootLogin prohibit-password
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
PidFile none
MaxStartups 200
MaxSessions 200
"""


def _ssh_config(name: str, hosts: Sequence[LabHost], folder: Path) -> str:
    called = " ".join([host.name for host in hosts] + [host.address for host in hosts])
    return f"""\
# Written by `ringside lab up --name {name}`; `ringside lab down --name {name}` removes it.
Host {called}
    User root
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking yes
    UpdateHostKeys no
    GSSAPIAuthentication no
"""


def check_ssh_reads(name: str, host: LabHost) -> None:
    """Refuse if ssh does not read the folder that holds the lab's configuration."""
    wanted = f"identityfile {folder_of(name)}/key"
    if wanted not in run("ssh", "-G", host.name).splitlines():
        raise RefusalError(
            "ssh must read the lab's configuration.",
            received=f"`ssh -G {host.name}` does not name the key of {SSH}/ringside-{name}.conf",
            advice=f"Put `Include {SSH}/*.conf` first into /etc/ssh/ssh_config.",
        )


def files(name: str) -> list[Path]:
    """Files of the lab outside its folder that exist."""
    own = NETNS.iterdir() if NETNS.is_dir() else ()
    found = [path for path in own if lab_of_numbered(path.name) == name]
    config = SSH / f"ringside-{name}.conf"
    return found + ([config] if config.exists() else [])


def names() -> set[str]:
    """The labs that have files or lines outside their folders."""
    found = {
        one[1] for path in SSH.glob("ringside-*.conf") if (one := _CONFIG.fullmatch(path.name))
    }
    if NETNS.is_dir():
        found |= {lab for path in NETNS.iterdir() if (lab := lab_of_numbered(path.name))}
    return found | set(_BEGIN.findall(HOSTS.read_text()))


def is_in_hosts(name: str) -> bool:
    """Whether /etc/hosts has lines of the lab."""
    text = HOSTS.read_text()
    return without_block(text, name) != text


def remove(name: str) -> None:
    """Remove every file of the lab outside its folder, and its lines in /etc/hosts."""
    write_hosts(without_block(HOSTS.read_text(), name))
    for path in files(name):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    with contextlib.suppress(OSError):  # other labs have files there, or it does not exist
        NETNS.rmdir()
