"""A machine that does not exist, so that plans are the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch import Plan, Site, make_plan
from ringside_core.specs import Placement, parse_hostfile
from tests.unit.stats.factory import spec_of

RUN_DIR = Path("/runs/one")
PlanOf = Callable[..., Plan]


@pytest.fixture
def site() -> Site:
    """A machine named here, with Ringside in /ringside; the kernel gives ports from 4001."""
    return Site(
        python="/venv/bin/python",
        root="/ringside",
        cwd="/home/me",
        run_id="00000000000000ab",
        names=frozenset({"localhost", "127.0.0.1", "here"}),
        is_root=False,
        scratch="/shm/ringside-ab",
        free_ports=lambda count: tuple(range(4001, 4001 + count)),
        interface_to=lambda hosts: "eth7",
    )


@pytest.fixture
def plan_of(site: Site) -> PlanOf:
    """Make the plan of a backend on that machine; `hostfile` is text."""

    def plan_of(
        backend: str,
        *,
        replicas: int = 2,
        hosts: int = 1,
        options: dict[str, Any] | None = None,
        hostfile: str | None = None,
        launcher: Any = "auto",
        on: Site = site,
        **placed: Any,
    ) -> Plan:
        spec = spec_of(
            backend, replicas, hosts=hosts, options=options or {}, global_batch=8 * replicas
        )
        hosts_there = parse_hostfile(hostfile) if hostfile else None
        placement = Placement(hosts=hosts_there, **placed)
        return make_plan(spec, run_dir=RUN_DIR, placement=placement, launcher=launcher, site=on)

    return plan_of
