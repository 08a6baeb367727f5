"""A host's first process that does not say that it is there, without a lab."""

import subprocess
from pathlib import Path

import pytest

from ringside.lab import LabHost, host, names
from ringside_core.specs import RefusalError

HOST = LabHost(name="blue2", index=2, address="10.77.0.2", cores=0.25, affinity=(1,))


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("exec sleep 3600", "its first process says nothing for 0.2 s. Received: its log is empty"),
        ("exit 3", "its first process ended. Received: its log is empty"),
    ],
)
def test_release(shell: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is limited, because whoever makes a lab keeps all others from making one."""
    monkeypatch.setattr(names, "LABS", tmp_path)
    monkeypatch.setattr(host, "START_S", 0.2 if "sleep" in shell else 30.0)
    (tmp_path / "blue").mkdir()
    (tmp_path / "blue" / "blue2.log").touch()
    with subprocess.Popen(
        ["sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            with pytest.raises(RefusalError, match=f"Host blue2 did not start: {why}"):
                host.release(HOST, process)
        finally:
            process.kill()
