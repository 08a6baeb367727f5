"""Memory and CPU seconds of a run, against sums done by hand on made-up records."""

from typing import Any

import pytest

from ringside.stats import run_figures
from ringside_core.specs import Run
from tests.unit.stats.factory import arm_of, epoch, record, run_of, spec_of

SPEC = spec_of("horovod", 2)
ARM = arm_of("horovod", 2)


def three_processes(**changes: Any) -> Run:
    """Two ranks on one machine and one on another; 3 kB of each are shared pages, of one 4 kB."""
    spec = spec_of("horovod", 3, global_batch=33)
    shared = [(3_000, "boot-1"), (4_000, "boot-1"), (3_000, "boot-2")]
    records = [
        record(
            spec,
            [epoch(1.0), epoch(1.0)],
            rank,
            peak_memory_bytes=10_000,
            shared_memory_bytes=size,
            boot_id=boot_id,
        ).replace(**changes)
        for rank, (size, boot_id) in enumerate(shared)
    ]
    return run_of(arm_of("horovod", 3), records)


def test_pages_that_processes_of_a_machine_share_count_once() -> None:
    """What each has alone, and on each machine the most that one of them shares."""
    run = three_processes()

    alone = (10_000 - 3_000) + (10_000 - 4_000) + (10_000 - 3_000)
    assert run_figures.peak_pss_bytes(run).value == alone + 4_000 + 3_000
    for field in ({"peak_memory_bytes": 0}, {"shared_memory_bytes": None}):
        silent = run_figures.peak_pss_bytes(three_processes(**field))
        assert silent.reason == "a process did not record it"


def test_cpu_time_is_of_what_comes_after_start_up() -> None:
    """Without the import, whatever it takes, and without the examples of the first step."""
    epochs = [epoch(1.0, examples=100), epoch(1.0, examples=100)]

    def run_with(import_s: float | None) -> Run:
        records = [
            record(SPEC, epochs, rank, cpu_s=(import_s or 0) + own_s, startup_cpu_s=import_s)
            for rank, own_s in enumerate((2.0, 2.2))
        ]
        return run_of(ARM, records)

    for import_s in (5.0, 50.0):
        run = run_with(import_s)
        assert run_figures.startup_cpu_s(run).value == 2 * import_s
        per_1000 = run_figures.cpu_s_per_1000_examples(run).value
        assert per_1000 == pytest.approx(1000 * 4.2 / (200 - 32))
    for figure in (run_figures.startup_cpu_s, run_figures.cpu_s_per_1000_examples):
        assert figure(run_with(None)).reason == "a process did not record it"
