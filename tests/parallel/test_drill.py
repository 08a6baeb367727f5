"""`ringside drill` as it is typed, with real processes and real signals."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringside.drill.cells import Drill
from ringside.drill.outside import processes_of
from tests.parallel.typed import ROOT, starting
from tests.waiting import wait_until

LIMIT_S = 280
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(LIMIT_S + 20),
    pytest.mark.usefixtures("signals_heard", "quick_horovodrun"),
]


MODEL = (
    *("--workload", f"{ROOT}/tests/cluster/held.py:program"),
    *("--global-batch", "6", "--epochs", "3"),
)
TWO_FITS = """
import numpy as np
import ringside
from ringside import tf

x, y = np.random.default_rng(0).normal(size=(60, 4)), np.ones(60)
with ringside.scope():
    layers = [tf.keras.layers.Dense(8), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    model.compile("adam", "mse")
for epochs in (1, 3):
    ringside.fit(model, x, y, batch_size=6, epochs=epochs)
"""


def drilling(folder: Path, *flags: str, program: Sequence[str] = MODEL) -> "subprocess.Popen[str]":
    """A drill, by default of a small model with dropout, in a folder of its own."""
    own = ("--name", "drill", "--output", str(folder))
    return starting("drill", *program, *own, *flags)


def test_a_killed_rank_and_a_killed_launcher_cost_three_updates(tmp_path: Path) -> None:
    """Both runs end where the untouched one does; the pages say what happened."""
    running = drilling(
        tmp_path, "--backends", "horovod", "--faults", "rank-killed,launcher-killed,server-killed"
    )
    said, _ = running.communicate(timeout=LIMIT_S)

    assert running.returncode == 0, said
    found = Drill.from_json((tmp_path / "drill" / "drill.json").read_text())
    killed, launcher, server = found.cells
    assert server.obstacle == "it has no server"
    assert [one.kind for one in killed.outcomes] == ["failed", "completed"]
    assert "rank-1 was killed by SIGKILL after step 17" in killed.outcomes[0].reason
    assert [one.kind for one in launcher.outcomes] == ["completed"]
    for cell in (killed, launcher):
        assert cell.again == 3  # saved after 14, the fourth update of the second epoch
        assert cell.noticed_s is not None
        assert cell.back_s is not None
        assert 0 < cell.noticed_s < cell.back_s
        assert cell.other_rows == 0
        assert cell.deviation is not None
        assert cell.deviation <= 1e-10
    page = (tmp_path / "drill" / "drill.md").read_text()
    assert "| rank-killed | failed |" in page


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_full_disk_costs_three_updates(tmp_path: Path) -> None:
    """The run starts again once there is space; the disk has gone, and what was on it has not."""
    running = drilling(tmp_path, "--backends", "serial", "--faults", "disk-full")
    said, _ = running.communicate(timeout=LIMIT_S)

    assert running.returncode == 0, said
    (cell,) = Drill.from_json((tmp_path / "drill" / "drill.json").read_text()).cells
    kinds = [one.kind for one in cell.outcomes]
    assert (kinds[0], kinds[-1]) == ("failed", "completed")
    assert "No space left on device" in cell.outcomes[0].reason
    assert (cell.again, cell.deviation) == (3, 0.0)
    folder = tmp_path / "drill" / "serial-x1"
    assert sorted(one.name for one in folder.iterdir()) == ["disk-full", "whole"]
    left, whole = (
        {one.name for one in (folder / name).iterdir()} for name in ("disk-full", "whole")
    )
    assert left - whole == {"attempts", "attempts.json"}
    assert not any(str(folder) in line for line in Path("/proc/mounts").read_text().splitlines())


def test_of_a_script_the_last_fit_is_struck(tmp_path: Path) -> None:
    """The fit before is restored; both end where those of the untouched run do."""
    script = tmp_path / "two_fits.py"
    script.write_text(TWO_FITS)

    faults = "rank-killed,checkpoint-damaged"
    running = drilling(tmp_path, "--backends", "serial", "--faults", faults, program=(str(script),))
    said, _ = running.communicate(timeout=LIMIT_S)

    assert running.returncode == 0, said
    cells = Drill.from_json((tmp_path / "drill" / "drill.json").read_text()).cells
    assert [cell.again for cell in cells] == [3, 7]  # saved after 14, and after 10
    for cell in cells:
        assert [one.kind for one in cell.outcomes] == ["failed", "completed"]
        assert (cell.other_rows, cell.deviation) == (0, 0.0)


def test_a_refused_drill_leaves_nothing(tmp_path: Path) -> None:
    """A checkpoint would stand within an execution."""
    arm = "horovod:steps_per_execution=3"
    running = drilling(tmp_path, "--backends", arm, "--faults", "nan")
    said, _ = running.communicate(timeout=LIMIT_S)

    assert running.returncode == 2, said
    assert "checkpoint_steps must be a multiple of steps_per_execution" in said
    assert "Traceback" not in said
    assert not (tmp_path / "drill").exists()


def test_a_killed_drill_leaves_no_run_behind(tmp_path: Path) -> None:
    """kill -9, while its run trains."""
    running = drilling(tmp_path, "--backends", "mirrored", "--faults", "nan")
    folder = tmp_path / "drill" / "mirrored-x2" / "whole"
    try:
        begun = (folder / "progress").glob
        wait_until(lambda: running.poll() or list(begun("*")), seconds=LIMIT_S / 2)
        assert running.poll() is None
        os.kill(running.pid, signal.SIGKILL)
    finally:
        running.kill()
        running.communicate()

    wait_until(lambda: not processes_of(folder))
