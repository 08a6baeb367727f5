"""What the report says of asynchronous workers beside synchronous ones, one of them slow."""

from typing import Any

import numpy as np
import pytest

from ringside.report.blocks import Table
from ringside.report.sections.asynchrony import asynchrony_section
from ringside.stats.summary import summarize
from ringside_core.specs import Arm, Comparison, Settings
from tests.unit.report.proofs import verified, without_backend
from tests.unit.stats.factory import arm_of, comparison_of, epoch, record, run_of, spec_of

SECONDS = {"horovod": (1.0, 2.9), "parameter_server": (1.2, 1.5)}
STALE = (30, 60, 5, 3, 1, 1)  # of one epoch; a mean of 0.88


def slowed(arm: Arm) -> Arm:
    """The arm with a slow worker."""
    return arm.replace(
        label=f"{arm.label} slow",
        group=f"{arm.group} slow",
        settings=Settings(slow_worker=0.33),
    )


def compared(*, launches: int = 4) -> Comparison:
    """Each launch a bit faster or slower than the others."""
    random, runs, arms = np.random.default_rng(3), [], []
    for backend, both in SECONDS.items():
        equal = arm_of(backend, 2)
        for arm, seconds in zip((equal, slowed(equal)), both, strict=True):
            arms.append(arm)
            spec = spec_of(backend, 2, slow_worker=arm.settings.slow_worker)
            is_server = backend == "parameter_server"
            more: dict[str, Any] = {"staleness": STALE} if is_server else {}
            for number in range(launches):
                train_s = seconds * random.lognormal(0, 0.01)
                epochs = [
                    epoch(train_s, accuracy=accuracy, **more) for accuracy in (0.5, 0.91, 0.92)
                ]
                roles = ("coordinator", "server", "server", "server")
                records = [
                    record(spec, epochs if rank == 0 or not is_server else (), rank, role=role)
                    for rank, role in enumerate(roles if is_server else ("replica",) * 2)
                ]
                runs.append(run_of(arm, records, number=number, spec=spec))
    return verified(comparison_of(arms, runs))


def test_speed_staleness_and_what_they_cost_stand_side_by_side() -> None:
    """Against NumPy: the ratio of both arms by launch, the parts of the staleness, the updates."""
    comparison = compared()
    (section,) = asynchrony_section(summarize(comparison))
    table = section.blocks[0]
    assert isinstance(table, Table)
    cells = {row[0].main: row for row in table.rows}

    seconds = {
        arm.label: [r.records[0].epochs[1].train_s for r in comparison.runs if r.arm == arm.label]
        for arm in comparison.arms
    }
    for backend, kept in (("horovod", "0.3"), ("parameter_server", "0.8")):
        equal, slow = (np.log(seconds[f"{backend} ×2{end}"]) for end in ("", " slow"))
        ratio = float(np.exp(np.mean(equal - slow)))
        assert cells[f"{backend} ×2 slow"][2].main.startswith(f"{ratio:.2f}")
        assert f"{ratio:.2f}".startswith(kept)
        assert f"{backend} ×2 slow {ratio:.2f}" in section.answer
    assert (cells["horovod ×2"][2].main, cells["horovod ×2"][2].note) == ("–", "")

    assert cells["parameter_server ×2"][3].main == "0: 30 %, 1: 60 %, 2: 5.0 %, 3+: 5.0 %"
    assert cells["parameter_server ×2"][3].note == "mean 0.88"
    assert "an update is 0.88 updates stale on average" in section.answer
    assert cells["horovod ×2"][3].note == "synchronous: none"
    assert cells["horovod ×2"][4].main == "4"  # two epochs of two steps
    assert cells["horovod ×2"][6].main.startswith("0.92")


@pytest.mark.parametrize("other", SECONDS)
def test_one_kind_alone_has_no_section(other: str) -> None:
    """There is nothing to set side by side."""
    assert not list(asynchrony_section(summarize(without_backend(compared(), other))))
