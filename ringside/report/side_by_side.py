"""Two comparisons side by side: a page, Markdown and a table for the terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable
from rich.text import Text as RichText

from ringside.report.blocks import Block, Bullets, Caveat, Cell, Section, Table, Text, heads
from ringside.report.terminal import rich_table
from ringside.report.words import (
    NOTHING,
    ratio_words,
    span_or_none,
    times,
    why_no_interval,
    with_interval,
)
from ringside.stats.side_by_side import Change, SideBySide
from ringside_core.specs import write_whole
from ringside_core.text import plain, plural

PAGE, MARKDOWN = "side_by_side.html", "side_by_side.md"
HOW = (
    "Examples/s are geometric means of the rounds that count. The ratio is arm ÷ serial in the "
    "same round, now ÷ before, with the 95 % interval of Welch (1947) on logarithms. A change that "
    "made both arms faster or slower cancels. A disturbance of one arm on one day, such as a busy "
    "network, does not cancel: compare once more before you act. The word is corrected for the "
    "number of arms (Holm 1979)."
)
GATE = "Only --fail-if-slower 5% lets a regression end with another exit code than 0."


def write_side_by_side(two: SideBySide, folder: Path, *, names: tuple[str, str]) -> Path:
    """Write side_by_side.html and side_by_side.md into the folder of the later comparison.

    Args:
        two: comparisons.
        folder: where the pages are written.
        names: of the two folders, as the reader sees them.

    Returns:
        The path of side_by_side.html.
    """
    from ringside.report.html import rendered
    from ringside.report.markdown import escaped, rendered_section

    title = f"{two.before.name} and {two.now.name}"
    lead = f"Before: {names[0]}. Now: {names[1]}."
    sections = (_circumstances(two), _arms(two))
    page = rendered(
        "sections.html.j2",
        eyebrow="Ringside, side by side",
        title=title,
        lead=lead,
        sections=sections,
        plots={},
    )
    parts = [f"# {escaped(title)}", escaped(lead)]
    for section in sections:
        parts += rendered_section(section)
    write_whole(folder / MARKDOWN, "\n\n".join(parts) + "\n")
    write_whole(folder / PAGE, page)
    return folder / PAGE


def summary_of(two: SideBySide) -> str:
    """Arms that became slower or faster, or lost their certificate; one sentence each."""
    slower = [one for one in two.changes if one.regression]
    faster = [one for one in two.changes if one.word == "faster"]
    if not two.changes:
        return "No arm is in both comparisons."
    said = [_counted(slower, "slower"), _counted(faster, "faster")]
    known = [one for one in two.changes if one.ratio.interval is not None]
    if known and not slower and not faster:
        said = [f"No significant difference for any of {plural(len(known), 'arm')}."]
    if unknown := [one.label for one in two.changes if one not in known]:
        said.append(f"No interval for {', '.join(unknown)}.")
    gained = [one.label for one in two.changes if one.certificate == "gained"]
    said += _lost(two)
    said += [f"Now comparable: {', '.join(gained)}."] if gained else []
    return " ".join(one for one in said if one)


def guard(two: SideBySide, most: float) -> tuple[bool, str]:
    """Whether a job must fail, and why or why not.

    It fails if an arm is slower by the verdict of its row, and by more than a part of its speed;
    and if nothing is known of one that was measured before.

    Args:
        two: comparisons.
        most: the part of its speed that an arm may lose.
    """
    part = f"{100 * most:g} %"
    slow = [one for one in two.changes if one.regression and (one.ratio.value or 1) < 1 - most]
    said = [f"Slower by more than {part}: {_listed(slow)}."] if slow else []
    if bad := said + _lost(two) + _unknown(two):
        return True, " ".join(bad)
    left = [
        one
        for one in two.changes
        if one.ratio.interval is None or one.ratio.interval.low < 1 - most
    ]
    said = [f"No arm is shown to be slower by more than {part}."]
    said += [f"Not excluded: {_listed(left)}."] if left else []
    return False, " ".join(said)


def _lost(two: SideBySide) -> list[str]:
    lost = [one.label for one in two.changes if one.certificate == "lost"]
    return [f"No longer comparable: {', '.join(lost)}."] if lost else []


def _unknown(two: SideBySide) -> list[str]:
    gone = [
        one.label
        for one in two.changes
        if one.before.value is not None and one.now.value is None and one.certificate != "lost"
    ]
    gone = [*two.only_before, *gone]
    said = [f"No longer measured: {', '.join(gone)}."] if gone else []
    if two.untrusted:
        return [*said, f"No verdict: {two.untrusted}."]
    if not any(one.ratio.interval for one in two.changes):
        said.append("No verdict: no arm has an interval in both.")
    return said


def _listed(changes: Sequence[Change]) -> str:
    return ", ".join(f"{one.label} {ratio_words(one.ratio)}" for one in changes)


def _counted(changes: Sequence[Change], word: str) -> str:
    return f"{plural(len(changes), 'arm')} {word}: {_listed(changes)}." if changes else ""


def _circumstances(two: SideBySide) -> Section:
    """What differs between the two although the experiment is the same."""
    names = [name for name, _, _ in two.differs]
    columns = heads("<What | <Before | <Now")
    rows = tuple((Cell(name), Cell(old), Cell(new)) for name, old, new in two.differs)
    blocks = (Table(columns, rows, label="What differs"),) if rows else ()
    answer = f"Different: {', '.join(names)}." if names else "Software and rounds are the same."
    return Section("around", "What else differs?", "Around", answer, blocks, sure=not names)


def _arms(two: SideBySide) -> Section:
    blocks: list[Block] = [changes_table(two)]
    blocks += [Text(why_not)] if (why_not := _why_no_interval(two)) else []
    blocks += [Bullets(tuple(map(Caveat, _notes(two)))), Text(HOW)]
    bad = any(one.regression or one.certificate == "lost" for one in two.changes)
    return Section(
        "arms", "Faster or slower?", "Arms", summary_of(two), tuple(blocks), sure=not bad
    )


def _why_no_interval(two: SideBySide) -> str:
    return why_no_interval(e for one in two.changes for e in (one.before, one.now, one.ratio))


def _notes(two: SideBySide) -> list[str]:
    notes = []
    serial = two.serial
    if serial is not None:
        notes.append(
            f"{serial.label}, which is not distributed, is now {ratio_words(serial.ratio)} as fast."
            " The reason is the machine, TensorFlow or the time of day; the change is taken out of "
            "the other arms."
        )
    else:
        notes.append(
            "No arm without distribution is in both comparisons, so a change of the machine cannot "
            "be separated from a change of a stack."
        )
    if two.only_before:
        notes.append(f"Only before: {', '.join(two.only_before)}.")
    if two.only_now:
        notes.append(f"Only now: {', '.join(two.only_now)}.")
    return [*notes, GATE]


def changes_table(two: SideBySide) -> Table:
    """One row for each arm that is in both comparisons."""
    columns = heads(
        "<Arm | Before (examples/s) | Now (examples/s) | Now ÷ before (95 % interval) | "
        "<Verdict | <Comparable"
    )
    rows = tuple(_row(one) for one in two.changes)
    return Table(columns, rows, label="Arms in both comparisons")


def _row(one: Change) -> tuple[Cell, ...]:
    if not one.comparable:
        verdict = ("not comparable", "")
    elif one.ratio.interval is None:
        verdict = ("no verdict", "")
    else:
        words = {"slower": "regression", "faster": "improvement"}
        verdict = (one.word, words.get(one.word, one.reason))
    reason = one.not_comparable_now or one.not_comparable_before
    comparable = Cell("no", reason) if reason else Cell("yes")
    if one.certificate:
        lost = one.certificate == "lost"
        comparable = Cell(one.certificate, reason if lost else f"before: {reason}", bad=lost)
    value, within = one.ratio.value, one.ratio.interval
    return (
        Cell(one.label),
        Cell(*with_interval(one.before)),
        Cell(*with_interval(one.now)),
        Cell(NOTHING if value is None else times(value, within), span_or_none(one.ratio)),
        Cell(*verdict, bad=one.regression),
        comparable,
    )


def render_side_by_side_table(two: SideBySide) -> RichTable:
    """The same for a terminal."""
    below = RichText()
    below.append(plain(summary_of(two)) + "\n", style="bold")
    for name, old, new in two.differs:
        below.append(f"\ndiffers  {plain(name)}: {plain(old)} before, {plain(new)} now")
    for note in (_why_no_interval(two), *_notes(two)):
        below.append(f"\n{plain(note)}" if note else "")
    return rich_table(changes_table(two), below=below)
