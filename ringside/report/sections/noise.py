"""How much arms differ by chance: the noise floor, the rounds, and what disturbed them."""

import math

from ringside.report.blocks import Block, Cell, Column, Heading, Section, Table, Terms, Text, heads
from ringside.report.ranking import verdict_cell, word_of
from ringside.report.sections.machine import beside_line
from ringside.report.sections.verdicts import SURE, visible_cell
from ringside.report.words import ratio_between, times, why_no_interval
from ringside.stats.rounds import fixed_computation_ms
from ringside.stats.summary import Summary
from ringside.stats.verdicts import CHANCE, PairVerdict
from ringside_core.specs import Comparison
from ringside_core.text import duration, listed, number, percent, plural

NO_TWIN = "Not measured: no arm ran twice, under two names."


def noise_section(comparison: Comparison, summary: Summary) -> Section:
    """The noise floor and the rounds."""
    blocks: list[Block] = []
    if summary.noise_floor:
        blocks.append(_table(summary.noise_floor))
        if why_not := why_no_interval(one.ratio for one in summary.noise_floor):
            blocks.append(Text(why_not))
    blocks.append(Terms(tuple(_rounds(comparison, summary)), label="Rounds", facts=True))
    if summary.rounds.disturbed:
        blocks += [Heading("Disturbed rounds"), _disturbed(summary)]
    return Section(
        "noise",
        "How large are differences by chance?",
        "Noise",
        f"{noise_line(summary)} {rounds_line(comparison, summary)}",
        tuple(blocks),
        sure=bool(summary.noise_floor)
        and all(one.word == "cannot tell" and one.ratio.interval for one in summary.noise_floor),
    )


def noise_line(summary: Summary) -> str:
    """The noise floor in one line: an arm against itself."""
    if not summary.noise_floor:
        return NO_TWIN
    told = []
    for one in summary.noise_floor:
        name = _twice(summary, one)
        if one.ratio.value is None or one.ratio.interval is None:
            told.append(f"{name} against itself: {one.ratio.reason or one.reason}.")
            continue
        ratio, span = times(one.ratio.value, one.ratio.interval), ratio_between(one)
        verdict = (
            "cannot tell, as expected"
            if one.word == "cannot tell"
            else f"{one.word}, which is a false alarm"
        )
        told.append(f"{name} against itself: {ratio} {span}, {verdict}.")
    return " ".join(told)


def _twice(summary: Summary, one: PairVerdict) -> str:
    """The arm that was measured twice; either of the two names may be the faster one."""
    twins = {row.arm.label: row.arm.twin_of for row in summary.arms if row.arm.twin_of}
    return twins.get(one.first, one.first)


def rounds_line(comparison: Comparison, summary: Summary) -> str:
    """How many rounds count, and why there were no more."""
    used, disturbed = len(summary.rounds.used), len(summary.rounds.disturbed)
    told = f"{plural(used, 'round')} used"
    if disturbed and summary.rounds.kept_disturbed:
        told += f", {disturbed} of them disturbed"
    elif disturbed:
        told += f", {disturbed} left out as disturbed"
    return f"{told}. {comparison.ended_because or 'It was interrupted and can be continued.'}"


def _table(floor: tuple[PairVerdict, ...]) -> Table:
    columns = (
        Column("The same arm twice", numeric=False),
        Column("Ratio", "95 % interval, n rounds"),
        Column("Verdict", "judged alone", numeric=False),
        SURE,
    )
    rows = []
    for one in floor:
        cell = verdict_cell(one)
        note = f"{cell.note} n={one.ratio.n}" if one.ratio.interval else cell.note
        word = Cell(word_of(one), bad=one.word != "cannot tell")
        pair = Cell(f"{one.first} ÷ {one.second}")
        rows.append((pair, Cell(cell.main, note), word, visible_cell(one)))
    return Table(columns, tuple(rows), label="Noise floor", kind="noise")


def _rounds(comparison: Comparison, summary: Summary) -> list[tuple[str, str]]:
    asked = comparison.asked
    goes_on = asked.interval_width is not None
    rules = [f"{'at least ' if goes_on else ''}{plural(asked.least, 'undisturbed round')}"]
    if asked.most > asked.least:
        rules.append(f"at most {asked.most}")
    if asked.interval_width is not None:
        most = percent(asked.interval_width)
        rules.append(f"until each interval of interest is at most {most} wide")
    if asked.budget_s is not None:
        rules.append(f"within {duration(asked.budget_s)}")
    facts = [
        ("Rounds begun", str(comparison.rounds)),
        ("Rounds used", str(len(summary.rounds.used))),
        ("Asked for", ", ".join(rules)),
        ("Ended because", comparison.ended_because or "it was interrupted and can be continued"),
        ("Looks", _looks(comparison, summary)),
    ]
    if told := beside_line(comparison):
        facts.append(("All cores of the machine", told))
    if times := fixed_computation_ms(comparison).values():
        told = ", ".join(number(one) for one in times)
        facts.append(("A fixed computation before each block", f"{told} ms, by round"))
    if widest := summary.widest_of_interest():
        pair, width = widest
        width_told = percent(width) if math.isfinite(width) else "not there yet"
        facts.append(("Widest interval of interest", f"{width_told}: {pair}"))
    return facts


def _looks(comparison: Comparison, summary: Summary) -> str:
    """How often it was looked at, and what this costs."""
    before = comparison.looks
    told = f"{plural(len(before) + 1, 'look')}"
    if before:
        told += f", the earlier after {listed([str(one.rounds) for one in before])} rounds"
    told += (
        ": in each family of questions a word of this look is wrong in at most "
        f"{percent(summary.level)} of such experiments"
    )
    if comparison.asked.counted and not before:
        return told
    return f"{told}; of all looks together, however many, in at most {percent(CHANCE)}"


def _disturbed(summary: Summary) -> Table:
    columns = heads("<Round | <What happened | <Used")
    rows = tuple(
        (
            Cell(str(number + 1)),
            Cell(why),
            Cell("yes: too few others" if number in summary.rounds.used else "no"),
        )
        for number, why in sorted(summary.rounds.disturbed.items())
    )
    return Table(columns, rows, label="Disturbed rounds", kind="disturbed")


def false_alarms(summary: Summary) -> str:
    """Arms whose two measurements differ beyond chance; empty: none."""
    names = [_twice(summary, one) for one in summary.noise_floor if one.word != "cannot tell"]
    return listed(names) if names else ""
