"""train.py with a request, in a Python that has imported nothing.

The other tests of this folder start forks of a warm process. Those would hide a wrong order of
imports, or a variable that is set too late.
"""

from pathlib import Path

from launch.flags import spec_from_flags
from ringside.verify.processes import run_request
from ringside.verify.request import Case, Request
from ringside_core.specs import Surroundings


def test_one_device_is_inspected_and_watched(tmp_path: Path) -> None:
    """All code that it loads is covered by Ringside's own version, so none counts as a user's."""
    spec = spec_from_flags(Surroundings(), backend="one_device", save="record")
    request = Request(cases=(Case(name="few", spec=spec, steps=2),), inspect=(1,))

    watched = run_request(request, spec, tmp_path / "run")

    assert watched.obstacle == ""
    trace = watched.traces["few"]["rank-0"]
    assert "error" not in trace.meta
    assert trace.meta["sources"] == {}
