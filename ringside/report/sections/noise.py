"""How much arms differ by chance: the noise floor, the launches, and what disturbed them."""

from ringside.report.blocks import Block, Cell, Heading, Section, Table, Terms, heads
from ringside.report.sections.machine import beside_line
from ringside.report.words import ratio_words
from ringside.stats.division import division_lines, measured_share
from ringside.stats.rounds import fixed_computation_ms
from ringside.stats.summary import Summary
from ringside_core.specs import Comparison
from ringside_core.text import duration, number, percent, plural

NO_TWIN = "Not measured: a second serial takes part with --all-arms."


def noise_section(comparison: Comparison, summary: Summary) -> Section:
    """The noise floor and the launches."""
    blocks: list[Block] = [Terms(tuple(_facts(comparison, summary)), label="Launches", facts=True)]
    if summary.launches.disturbed:
        blocks += [Heading("Disturbed launches"), _disturbed(summary)]
    floor, title = summary.noise_floor, "How large are differences by chance?"
    answer = f"{noise_line(summary)} {launches_line(comparison, summary)}"
    sure = floor is not None and floor.ratio.covers(1)
    return Section("noise", title, "Noise", answer, tuple(blocks), sure=sure)


def noise_line(summary: Summary) -> str:
    """The noise floor in one line: an arm against itself."""
    floor = summary.noise_floor
    if floor is None:
        return NO_TWIN
    text = f"{_twice(summary)} against itself: "
    if floor.ratio.value is None or floor.ratio.interval is None:
        return f"{text}{floor.ratio.reason}."
    text += ratio_words(floor.ratio)
    if floor.ratio.covers(1):
        return f"{text}."
    return f"{text}, which leaves out 1: one of twenty does by chance."


def false_alarm(summary: Summary) -> str:
    """The arm whose two measurements differ beyond chance; empty: none does."""
    floor = summary.noise_floor
    differs = floor is not None and floor.ratio.interval and not floor.ratio.covers(1)
    return _twice(summary) if differs else ""


def _twice(summary: Summary) -> str:
    """The arm that was measured twice; either of the two names may be the faster one."""
    floor = summary.noise_floor
    twins = {row.arm.label: row.arm.twin_of for row in summary.arms if row.arm.twin_of}
    return "" if floor is None else twins.get(floor.first, floor.first)


def launches_line(comparison: Comparison, summary: Summary) -> str:
    """How many launches count, why there were no more, and how much of the time was measured."""
    count, left_out = len(summary.launches.final), len(summary.launches.left_out)
    screening = "" if summary.launches.first else "The screening and "
    text = f"{screening}{plural(count, 'launch')} of the final"
    if left_out:
        text += f", {left_out} left out as disturbed"
    text += f". {comparison.ended_because or 'It was interrupted and can be continued.'}"
    for note in comparison.notes:
        text += f" {note}"
    if (share := measured_share(comparison)) is not None:
        text += f" {percent(share)} of {duration(comparison.spent_s)} were measured steps."
    return text


def _facts(comparison: Comparison, summary: Summary) -> list[tuple[str, str]]:
    facts = [("Launches begun", str(comparison.rounds - summary.launches.first))]
    facts += [(f"Stage {k}", line) for k, line in enumerate(division_lines(comparison), start=1)]
    facts.append(
        ("Ended because", comparison.ended_because or "it was interrupted and can be continued")
    )
    facts.append(("Looked at", f"{comparison.looks}×"))
    if summary.inflation is not None:
        text = f"{summary.inflation:.1f} times as much as their blocks alone would"
        facts.append(("Launches scatter", text))
    if text := beside_line(comparison):
        facts.append(("All cores of the machine", text))
    if times_ms := fixed_computation_ms(comparison).values():
        text = ", ".join(number(one) for one in times_ms)
        facts.append(("A fixed computation before each block", f"{text} ms, by launch"))
    return facts


def _disturbed(summary: Summary) -> Table:
    columns = heads("<Launch | <What happened | <Used")
    rows = tuple(
        (
            Cell(str(number) if number else "screening"),
            Cell(why),
            Cell("no" if number in summary.launches.left_out else "yes: too few others"),
        )
        for number, why in sorted(summary.launches.disturbed.items())
    )
    return Table(columns, rows, label="Disturbed launches", kind="disturbed")
