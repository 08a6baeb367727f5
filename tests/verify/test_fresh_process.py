"""train.py with a request, in a Python that has imported nothing.

The other tests of this folder start forks of a warm process. Those would hide a wrong order of
imports, or a variable that is set too late.
"""

from pathlib import Path

from launch.flags import spec_from_flags
from ringside.certificates.processes import watched
from ringside.certificates.trial_request import TRIAL, UPDATES, TrialRequest
from ringside_core.specs import Surroundings, write_whole


def test_one_device_is_watched(tmp_path: Path) -> None:
    """All code that it loads is covered by Ringside's own version, so none counts as a user's."""
    spec = spec_from_flags(
        Surroundings(), backend="one_device", save="record", workload="digits", global_batch=48
    )
    write_whole(tmp_path / "run" / TRIAL, TrialRequest(updates=4).to_json())

    found = watched([UPDATES], spec, tmp_path / "run")

    assert found.execution.outcome.completed
    trace = found.traces[UPDATES]["rank-0"]
    assert trace.error == ""
    assert trace.steps == 4
    assert trace.meta["sources"] == {}
