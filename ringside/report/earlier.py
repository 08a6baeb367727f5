"""An earlier comparison of the same arms that says otherwise."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ringside.report.source import RESULTS, read_comparison
from ringside.report.words import ratio_words
from ringside.stats.side_by_side import SideBySide, side_by_side
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison, RefusalError
from ringside_core.text import duration, number

CONTRADICTION = "An earlier comparison contradicts this one: "
SAME = {"seed of the order", "rounds"}  # what may differ where the same question is asked
NEWEST = 10  # folders in which it is looked for


def with_earlier(comparison: Comparison, folder: Path) -> Comparison:
    """The comparison, with a note if an earlier one beside it contradicts its headline.

    An interval is of the minutes in which its launches were made. Where two intervals of the same
    pair do not meet, the machine has changed between them.

    Args:
        comparison: that has ended.
        folder: of the comparison; others are looked for beside it.
    """
    comparison = without_note(comparison)
    note = next(filter(None, map(_contradiction, _earlier(comparison, folder))), None)
    return comparison.replace(notes=(*comparison.notes, note)) if note else comparison


def without_note(comparison: Comparison) -> Comparison:
    """The comparison without that note: one that goes on may no longer contradict."""
    notes = (note for note in comparison.notes if not note.startswith(CONTRADICTION))
    return comparison.replace(notes=tuple(notes))


def _earlier(comparison: Comparison, folder: Path) -> Iterator[SideBySide]:
    """Earlier comparisons of the same arms and code on this machine, the newest first."""
    now = _asked(comparison)
    files = {file: _written(file) for file in folder.resolve().parent.glob(f"*/{RESULTS}")}
    for file in sorted(files, key=lambda file: -files[file])[:NEWEST]:
        try:
            before = read_comparison(file.parent)
            ended = before.ended_because and before.created_unix_s < comparison.created_unix_s
            if not ended or _asked(before) != now:
                continue
            two = side_by_side(before, comparison)
        except RefusalError:
            continue  # it measured something else
        if {what for what, _, _ in two.differs} <= SAME:
            yield two


def _written(file: Path) -> float:
    """When it was; 0 if it is gone by now."""
    with suppress(OSError):
        return file.stat().st_mtime
    return 0.0


def _asked(comparison: Comparison) -> tuple[object, ...]:
    """What must be equal in two comparisons of the same question, beside what `differs` has."""
    certificates = [(one.sources, one.orders) for one in comparison.certificates]
    shared = comparison.shared
    return shared, comparison.live, comparison.circumstances, certificates


def _contradiction(two: SideBySide) -> str:
    """One sentence for intervals of the headline's pair that do not meet; empty: they do."""
    now, before = summarize(two.now), summarize(two.before)
    if now.contest is None:
        return ""
    names = now.contest.first[0], now.contest.second[0]
    try:
        then, today = before.pair_of(*names).ratio, now.pair_of(*names).ratio
    except RefusalError:
        return ""  # an arm was not comparable then
    if then.interval is None or today.interval is None:
        return ""
    if then.interval.low <= today.interval.high and today.interval.low <= then.interval.high:
        return ""
    ago = duration(two.now.created_unix_s - two.before.created_unix_s)
    text = (
        f"{CONTRADICTION}{two.before.name}, {ago} before, found {ratio_words(then)} "
        f"for {names[0]} ÷ {names[1]}."
    )
    serial = two.serial
    if serial is not None and serial.before.value and serial.now.value:
        text += (
            f" {serial.label} trained {number(serial.before.value)} examples/s then, "
            f"{number(serial.now.value)} now."
        )
    return text
