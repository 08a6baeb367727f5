"""Start-up and time to target count from the command on, by one clock."""

from typing import Any

import pytest

from ringside.stats import run_figures
from ringside_core.specs import Run
from tests.unit.stats.factory import STARTED_UNIX_S, arm_of, epoch, record, run_of, spec_of

SPEC = spec_of("horovod", 2)
ARM = arm_of("horovod", 2)


def launched(after_s: tuple[float, float], **changes: Any) -> Run:
    """Two ranks that a launcher started so long after the command; they need 5 s and 3 s more."""
    epochs = [epoch(1.0, end_s=6.0), epoch(1.0, end_s=7.0, accuracy=0.95)]
    records = [
        record(SPEC, epochs, rank, startup_s=own_s, started_unix_s=STARTED_UNIX_S + after)
        for rank, (own_s, after) in enumerate(zip((5.0, 3.0), after_s, strict=True))
    ]
    return run_of(ARM, records, **changes)


def test_start_up_and_target_count_from_the_command_on() -> None:
    """A launcher that works for 4 s before its first rank makes both 4 s longer."""
    run = launched((4.0, 6.5))

    assert run_figures.startup_s(run).value == pytest.approx(max(4.0 + 5.0, 6.5 + 3.0))
    assert run_figures.time_to_target_s(run).value == pytest.approx(4.0 + 7.0)


@pytest.mark.parametrize("changes", [{"started_unix_s": None}, {"boot_id": "boot-2"}])
def test_times_of_two_clocks_are_not_subtracted(changes: dict[str, Any]) -> None:
    """Another machine, or an older file: each process counts from its own start."""
    run = launched((4.0, 6.5), **changes)

    assert run.launch_s(run.records[0]) is None
    assert run_figures.startup_s(run).value == 5.0
    assert run_figures.time_to_target_s(run).value == 7.0


def test_a_process_on_another_machine_does_not_add_its_clock() -> None:
    """Its clock is an hour ahead; the process on the command's machine tells the time."""
    run = launched((4.0, 3600.0))
    run = run.replace(records=(run.records[0], run.records[1].replace(boot_id="boot-2")))

    assert run_figures.startup_s(run).value == pytest.approx(4.0 + 5.0)
