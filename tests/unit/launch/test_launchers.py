"""The table of launchers: each makes a plan in the same way."""

from pathlib import Path
from typing import Any

import pytest

from launch import LAUNCHERS, Plan, Site
from ringside_core.specs import THIS_MACHINE, Host, Placement, RefusalError
from tests.unit.launch.conftest import spec_of

RUN_DIR = Path("/runs/one")
# Launcher: a backend that it can start, its own arguments, and the tasks that write a record.
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "local": ("mirrored", {}, ("rank-0",)),
    "horovodrun": ("horovod", {}, ("rank-0", "rank-1")),
    "mpirun": ("horovod", {}, ("rank-0", "rank-1")),
    "tf_config": ("parameter_server", {}, ("chief-0", "worker-0", "worker-1", "ps-0")),
    "slurm": ("multi_worker_mirrored", {"nodes": 2}, ("worker-0", "worker-1")),
    "kubernetes": (
        "parameter_server",
        {"image": "ringside:1"},
        ("chief-0", "worker-0", "worker-1", "ps-0"),
    ),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_makes_a_plan_with_the_same_arguments(name: str, site: Site) -> None:
    """The plan has processes or files, the tasks that are expected, and the mark of the site."""
    backend, own, expects = CASES[name]

    plan = LAUNCHERS[name](**own).plan(
        spec_of(backend), run_dir=RUN_DIR, placement=THIS_MACHINE, site=site
    )

    assert plan.expects == expects
    assert plan.run_id == site.run_id
    assert plan.render()
    assert bool(plan.processes) == (name != "kubernetes")


def test_slurm_refuses_a_hostfile(site: Site) -> None:
    """Slurm itself chooses the hosts."""
    placement = Placement(hosts=(Host(name="a", slots=2),))

    with pytest.raises(RefusalError, match="sbatch chooses the hosts"):
        LAUNCHERS["slurm"]().plan(
            spec_of("horovod"), run_dir=RUN_DIR, placement=placement, site=site
        )


def test_a_plan_must_start_something(site: Site) -> None:
    """Without processes and files nothing would ever happen."""
    with pytest.raises(RefusalError, match="processes or files"):
        Plan(
            spec=spec_of("serial", replicas=1),
            run_dir="/runs/one",
            expects=("rank-0",),
            run_id=site.run_id,
            python=site.python,
        )
