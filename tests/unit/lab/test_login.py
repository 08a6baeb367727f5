"""The lab's lines in a hosts file that is not the lab's."""

import os
from pathlib import Path

import pytest

from ringside.lab import lab, login, names
from ringside.lab.login import names_in, with_block, without_block, write_hosts
from ringside_core.specs import RefusalError
from tests.unit.lab.test_names import host

ONE = host(1, 1, (0,))
BEFORE = "127.0.0.1 localhost\n# mine\n10.0.0.1\tdb db.example # the database\n"
BLOCK = "# ringside lab blue: begin\n10.77.0.1 blue1\n# ringside lab blue: end\n"


@pytest.mark.parametrize("before", [BEFORE, "", "\n", "no end of line", "::1 x\n\n\n"])
def test_lines_are_added_and_removed_again(before: str) -> None:
    """Everything else stays, except that a last line without an end gets one."""
    added = with_block(before, "blue", ["10.77.0.1 blue1"])

    assert added.endswith(BLOCK)
    assert added.startswith(before)
    assert without_block(added, "blue").rstrip("\n") == before.rstrip("\n")
    assert without_block(before, "blue") == before


def test_each_lab_removes_its_own_lines() -> None:
    """Several labs use one file."""
    green = BLOCK.replace("blue", "green")
    text = BLOCK + BEFORE + green

    assert without_block(text, "blue") == BEFORE + green
    assert without_block(text, "green") == BLOCK + BEFORE
    assert without_block(text, "gre") == text


def test_a_hosts_file_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file were replaced, the mounts of other labs' hosts would keep the old one."""
    hosts = tmp_path / "hosts"
    hosts.write_text(BEFORE + BLOCK)
    monkeypatch.setattr(login, "HOSTS", hosts)
    inode = os.stat(hosts).st_ino

    write_hosts(BEFORE)

    assert hosts.read_text() == BEFORE
    assert os.stat(hosts).st_ino == inode


def test_a_host_name_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first line of a hosts file wins, so ssh would go to the other machine."""
    hosts = tmp_path / "hosts"
    hosts.write_text("10.9.9.9 other blue1\n" + BLOCK)
    monkeypatch.setattr(login, "HOSTS", hosts)

    assert names_in(BEFORE) == {"localhost", "db", "db.example"}
    with pytest.raises(RefusalError, match="blue1"):
        login.refuse_taken("blue", [ONE])
    hosts.write_text("10.9.9.9 other # blue1\n" + BLOCK)
    login.refuse_taken("blue", [ONE])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a machine that a lab writes into."""
    for name in ("ssh", "netns", "labs/blue"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "hosts").write_text(BEFORE)
    monkeypatch.setattr(login, "HOSTS", tmp_path / "hosts")
    monkeypatch.setattr(login, "SSH", tmp_path / "ssh")
    monkeypatch.setattr(login, "NETNS", tmp_path / "netns")
    monkeypatch.setattr(names, "LABS", tmp_path / "labs")
    monkeypatch.setattr(lab, "LABS", tmp_path / "labs")
    return tmp_path


def test_everybody_can_read_what_ssh_reads(machine: Path) -> None:
    """Whatever the umask: ssh ends for every user of whom a file of its configuration is hidden."""
    before = os.umask(0o077)
    try:
        login.write_logins("blue", "10.77.0.254", [ONE])
    finally:
        os.umask(before)

    modes = {
        str(path.relative_to(machine)): path.stat().st_mode & 0o777
        for folder in ("ssh", "netns", "labs/blue")
        for path in (machine / folder).rglob("*")
    }
    assert modes.pop("ssh/ringside-blue.conf") == 0o644
    assert modes.pop("netns/rs-blue-1") == 0o755
    assert modes.pop("netns/rs-blue-1/hosts") == modes.pop("netns/rs-blue-1/resolv.conf") == 0o644
    assert {mode & 0o077 for name, mode in modes.items() if name.endswith("key")} == {0}
