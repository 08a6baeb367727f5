"""Ctrl-C, kill and kill -9 of the process that calls execute(): no process of the run is left."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import Plan
from tests.parallel.launch.caller import calling
from tests.parallel.launch.conftest import PlanOf
from tests.waiting import wait_until

ARMS = {
    "tf_config": {"backend": "multi_worker_mirrored"},
    "servers": {"backend": "parameter_server"},
    "mpirun": {"backend": "horovod", "launcher": "mpirun"},
    "horovodrun": {"backend": "horovod"},
}
SIGNALS = {"SIGINT": -signal.SIGINT, "SIGTERM": 143, "SIGHUP": 129, "SIGKILL": -signal.SIGKILL}


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize(
    ("name", "arm"),
    [
        *(("SIGINT", arm) for arm in ("tf_config", "mpirun", "horovodrun")),
        *(("SIGTERM", arm) for arm in ("servers", "mpirun", "horovodrun")),
        ("SIGHUP", "tf_config"),
        *(("SIGKILL", arm) for arm in ARMS),
    ],
)
def test_a_signal_to_the_caller(
    name: str, arm: str, plan_of: PlanOf, tmp_path: Path, nothing_left: Callable[[Plan], bool]
) -> None:
    """The caller ends as the signal asks, and everything that it started is gone."""
    plan = plan_of(**ARMS[arm], steps=1000, who="absent")
    with calling(plan, tmp_path, stderr=subprocess.PIPE, start_new_session=True) as caller:
        assert caller.stdout is not None
        for line in caller.stdout:
            if "training, step" in line:
                break

        caller.send_signal(signal.Signals[name])
        _, errors = caller.communicate(timeout=20)

    assert caller.returncode == SIGNALS[name], errors
    if name == "SIGKILL":
        # The guard sweeps; otherwise nothing may be left the moment the caller has ended.
        wait_until(lambda: nothing_left(plan), seconds=5)


@pytest.mark.parametrize("arm", ARMS)
def test_a_run_that_saves_is_asked_to_end(arm: str, plan_of: PlanOf, tmp_path: Path) -> None:
    """SIGTERM to the caller reaches what trains, whatever stands between; its outcome is reported.

    mpirun has a handler for the signal too, and servers have none.
    """
    plan = plan_of(**ARMS[arm], steps=1000, who="absent", what="save when asked")
    with calling(plan, tmp_path, start_new_session=True) as caller:
        assert caller.stdout is not None
        ready = set()
        for line in caller.stdout:
            if "training" in line:
                ready.add(line.split()[0])
            if len(ready) == (1 if arm == "servers" else 2):
                break

        caller.send_signal(signal.SIGTERM)
        said, _ = caller.communicate(timeout=30)

    assert caller.returncode == 0
    assert "preempted(" in said.splitlines()[-1], said
    assert "ended by the launcher" in said.splitlines()[-1]
