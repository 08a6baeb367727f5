"""Caveats on how numbers are counted: what a reader would take for a difference of the arms."""

from collections.abc import Iterator

from ringside.report.blocks import Caveat
from ringside.stats.step_times import chief_of
from ringside.stats.summary import Summary
from ringside_core.text import listed, number


def epochs_in_another_order(summary: Summary) -> Iterator[Caveat]:
    """Pairs of arms of which one has the faster steps, and the other the faster epochs."""
    whole = {row.arm.label: row.spreads["whole_epochs_examples_s"].value for row in summary.arms}
    told = []
    for one in summary.verdicts:
        if one.word == "cannot tell":
            continue
        pair = (one.first, one.second)
        winner, other = pair if one.word == "faster" else reversed(pair)
        ahead, behind = whole[winner], whole[other]
        if ahead is not None and behind is not None and ahead < behind:
            rates = f"{number(ahead)} and {number(behind)} examples/s"
            told.append(f"{winner} is faster than {other}, and over whole epochs slower ({rates})")
    if told:
        yield Caveat(
            f"Examples/s leaves out what is paid between two epochs, which changes the order: "
            f"{listed(told, limit=3)}.",
            "If your epochs are as short as these, compare whole epochs; in longer ones the "
            "difference vanishes.",
            "results",
        )


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
