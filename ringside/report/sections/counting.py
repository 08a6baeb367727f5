"""Caveats on how numbers are counted: what a reader would take for a difference of the arms."""

from collections.abc import Iterator

from ringside.report.blocks import Caveat
from ringside.stats.step_times import chief_of
from ringside.stats.summary import Summary
from ringside_core.text import listed


def launchers_left_out(summary: Summary) -> Iterator[Caveat]:
    """Arms whose start-up and time to target begin with their first process, not the command."""
    chiefs = [(one, chief_of(one.run)) for one in summary.runs if one.run.outcome.completed]
    arms = [
        one.arm.label
        for one, chief in chiefs
        if chief is not None and not one.arm.for_breakdown and one.run.launch_s(chief) is None
    ]
    if arms:
        yield Caveat(
            f"Start-up and time to target of {listed(list(dict.fromkeys(arms)), limit=3)} leave "
            "out the launcher: the chief ran on another machine than the command, or the file is "
            "older than this time.",
            "Start the command on the first host of the hostfile.",
        )
