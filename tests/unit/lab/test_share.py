"""What is written into a cgroup, of either version, on a copy of the kernel's files."""

from pathlib import Path

import pytest

from ringside.lab import share
from ringside.lab.host import end_all, refuse_on_a_host
from ringside_core.specs import RefusalError
from tests.unit.lab.test_names import host

HOST = host(2, 0.25, (1,))


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree; a real one makes files in a new folder by itself."""
    monkeypatch.setattr(share, "CGROUPS", tmp_path)
    return tmp_path


def with_files(folder: Path, *names: str) -> None:
    """The files that the kernel would have made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_version_1(cgroups: Path) -> None:
    """A quarter of a core is a quarter of each period; a process joins the group by its file."""
    with_files(cgroups / "cpu", "cpu.cfs_quota_us")

    join = share.limit(HOST)

    group = cgroups / "cpu" / "rs-blue-2"
    period = int((group / "cpu.cfs_period_us").read_text())
    assert int((group / "cpu.cfs_quota_us").read_text()) == period / 4
    assert join == group / "cgroup.procs"
    assert share.groups("blue") == [group]
    assert share.groups("blu") == []


def test_version_2(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file takes both; the controller is first switched on for children."""
    with_files(cgroups, "cgroup.subtree_control")
    made = Path.mkdir

    def by_kernel(folder: Path) -> None:
        made(folder)
        (folder / "cpu.max").touch()

    monkeypatch.setattr(Path, "mkdir", by_kernel)

    join = share.limit(HOST)

    quota, period = map(int, (cgroups / "rs-blue-2" / "cpu.max").read_text().split())
    assert quota == period / 4
    assert (cgroups / "cgroup.subtree_control").read_text() == "+cpu"
    assert join == cgroups / "rs-blue-2" / "cgroup.procs"
    assert share.groups("blue") == [cgroups / "rs-blue-2"]


def test_members_that_have_no_number_here(tmp_path: Path) -> None:
    """The kernel shows processes of a foreign PID namespace as 0; kill 0 would end ourselves."""
    (tmp_path / "cgroup.procs").write_text("0\n17\n0\n23\n")

    assert share.members(tmp_path) == {17, 23}
    assert share.members(tmp_path / "removed") == set()


def test_a_lab_of_another_pid_namespace_is_not_ended(
    cgroups: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its processes have no number here, so the message says so and nothing is removed."""
    monkeypatch.setattr("ringside.lab.host.NAMESPACES", tmp_path / "none")
    group = cgroups / "cpu" / "rs-blue-2"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("0\n")

    with pytest.raises(RefusalError, match=r"where it was made.*another PID namespace"):
        end_all("blue")
    assert group.is_dir()

    (group / "cgroup.procs").unlink()  # the kernel's own files are no obstacle
    end_all("blue")
    assert not group.exists()


def test_labs_are_not_changed_from_inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`lab down` on a host would end itself halfway."""
    monkeypatch.setattr("ringside.lab.host.NAMESPACES", tmp_path)
    (tmp_path / "rs-blue-2").touch()
    (tmp_path / "other").symlink_to("/proc/self/ns/net")
    refuse_on_a_host()

    monkeypatch.setattr("ringside.lab.host.OWN_NAMESPACE", tmp_path / "rs-blue-2")
    with pytest.raises(RefusalError, match=r"on a host of a lab \(rs-blue-2\)"):
        refuse_on_a_host()
