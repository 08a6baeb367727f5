"""What a report says of the machine: others beside the runs, threads of a core, quotas."""

from typing import Any

from ringside.report.blocks import Terms
from ringside.report.sections.caveats import caveats
from ringside.report.sections.noise import noise_section
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison
from ringside_core.text import plain
from tests.unit.report.small import small


def of_all_cores(comparison: Comparison) -> str:
    """The fact in the section on noise."""
    section = noise_section(comparison, summarize(comparison))
    (facts,) = (block for block in section.blocks if isinstance(block, Terms))
    return plain(dict(facts.items)["All cores of the machine"])


def test_others_beside_the_cores_of_the_runs_are_told() -> None:
    """(18 − 15 + 0.5) of 8 · 9.5 s are 4.6 %, (30 − 15 + 0.5) are 20 %: that is a caveat."""
    quiet = small()
    (first, *others) = quiet.runs
    assert first.load is not None
    (counts,) = first.load.machines
    load = first.load.replace(machines=(counts.replace(machine_busy_s=30.0),))
    busy = quiet.replace(runs=(first.replace(load=load), *others))

    said = [
        [plain(one.what) for one in caveats(each, summarize(each)) if "all cores" in one.what]
        for each in (quiet, busy)
    ]

    assert of_all_cores(quiet) == "others used 4.6 % in the median run, 4.6 % at most"
    assert of_all_cores(busy) == "others used 4.6 % in the median run, 20 % at most"
    assert said[0] == []
    assert said[1][0].startswith(
        "In 1 run others used more than 10 % of all cores of the machine, at most 20 % of 8 "
        f"({first.arm})."
    )


def told(comparison: Comparison, word: str) -> list[str]:
    """The reasons to be careful with this word."""
    return [
        plain(one.what) for one in caveats(comparison, summarize(comparison)) if word in one.what
    ]


def with_records(comparison: Comparison, **changes: Any) -> Comparison:
    """The same, with other facts in every record."""
    return comparison.replace(
        runs=tuple(
            run.replace(records=tuple(one.replace(**changes) for one in run.records))
            for run in comparison.runs
        )
    )


def test_threads_of_one_core_are_told() -> None:
    """Both ranks of Horovod are on core 0: processors 0 and 1; the others have one processor."""
    assert told(with_records(small(), physical_cores=()), "hyper-threads") == []
    assert told(with_own_cores(small()), "hyper-threads") == []

    (said,) = told(with_records(small(), physical_cores=(0,)), "hyper-threads")

    assert said.endswith("which are not two cores: horovod ×2 (1 core for 2 processors).")


def with_own_cores(comparison: Comparison) -> Comparison:
    """Each processor is a core."""
    return comparison.replace(
        runs=tuple(
            run.replace(records=tuple(one.replace(physical_cores=one.cores) for one in run.records))
            for run in comparison.runs
        )
    )
