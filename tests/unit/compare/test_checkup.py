"""What `ringside doctor --run` finds: good, or what to do."""

import resource
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ringside.comparison import checkup
from ringside.comparison.checkup import clock, limits, ports, steps
from ringside_core.specs import Arm, Execution, NotRun, Outcome
from tests.unit.stats.factory import epoch, record, spec_of


def by_name() -> dict[str, checkup.Finding]:
    """The limits that are found."""
    return {one.what: one for one in limits()}


def test_what_is_too_little_says_what_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit by itself."""
    monkeypatch.setattr(checkup, "usable_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(checkup, "cpu_quota", lambda: 1.5)
    monkeypatch.setattr(checkup, "memory_left_bytes", lambda: 2**30)
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (256, 256))

    found = by_name()

    assert {one.mark for what, one in found.items() if what != "/dev/shm"} == {"to do"}
    assert "a quota allows 1.5 at once" in found["cores"].said
    assert found["open files"].said == "256; a run needs about 1024: ulimit -n 1024"
    assert "a run needs about 2 GiB" in found["memory"].said


def test_no_limit_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as one likes."""
    monkeypatch.setattr(checkup, "cpu_quota", lambda: None)
    most = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda limit: most)

    assert by_name()["open files"] == ("open files", "no limit", "good")
    assert by_name()["cores"].mark == "good"


def test_a_clock_that_is_set_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that catches up by one per cent; times of other hosts would not fit."""
    monkeypatch.setattr(checkup, "CLOCK_S", 0.05)
    assert clock().mark == "good"
    begun, real = time.time(), time.time

    monkeypatch.setattr(time, "time", lambda: begun + 1.01 * (real() - begun))

    assert clock().mark == "to do"
    assert "it is being set (+1.0%)" in clock().said


def test_a_host_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers look it up."""
    assert ports().mark == "good"

    def unknown(*arguments: object) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    assert ports().mark == "to do"
    assert "/etc/hosts" in ports().said


def test_steps_are_held_against_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arm that trains something else, one that fails, one that is not there."""
    absent = NotRun(label="tpu ×1", reason="there is none")
    losses = {"serial": 0.5, "mirrored": 0.5 * (1 + 1e-12), "horovod": 0.6}
    trained: list[Arm] = [arm for arm in checkup._arms() if arm.backend != "tpu"]

    def ended(plan: Any, deadline_s: float) -> Execution:
        backend = plan.spec.backend
        if backend not in losses:
            reason = "rank 1 died"
            return Execution(outcome=Outcome(kind="failed", reason=reason), wall_s=1.0, records=())
        spec = spec_of(backend, plan.spec.topology.num_replicas)
        one = epoch(1.0).replace(train={"loss": losses[backend]})
        return Execution(
            outcome=Outcome(kind="completed"), wall_s=1.0, records=(record(spec, [one]),)
        )

    monkeypatch.setattr(checkup, "available", lambda arms, shared: (tuple(trained), (absent,)))
    monkeypatch.setattr(checkup, "make_plan", lambda spec, run_dir: SimpleNamespace(spec=spec))
    monkeypatch.setattr(checkup, "execute", ended)

    found = {one.what: one for one in steps()}

    assert found["tpu ×1"] == ("tpu ×1", "there is none", "absent")
    assert [found[name].mark for name in ("serial ×1", "mirrored ×2")] == ["good", "good"]
    assert found["horovod ×2"].mark == "to do"
    assert "ringside verify --backends horovod" in found["horovod ×2"].said
    assert found["central_storage ×2"].mark == "to do"
    assert "rank 1 died" in found["central_storage ×2"].said
