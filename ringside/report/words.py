"""Statistics as a reader sees them, the same in every output: figures, intervals, outcomes."""

from collections.abc import Iterable

from ringside.stats.figure import Figure, Interval, Spread
from ringside_core.specs import Outcome
from ringside_core.text import decimals_for, number

NOTHING = "–"
NARROW = 0.04  # width of an interval of a ratio that needs a third decimal


def range_of(spread: Spread, *, scale: float = 1.0) -> str:
    """Lowest and highest and how many: `[11.2–12.9] n=3`; never to be read as an interval.

    Both have the decimals of the median, so that they are comparable at a glance.
    """
    count = f"n={spread.n}" if spread.n == spread.of else f"n={spread.n} of {spread.of}"
    if spread.value is None or spread.n == 1:
        return f"{count}, no range"
    places = decimals_for(spread.value * scale)
    low, high = (number(v * scale, places) for v in (spread.lowest, spread.highest))
    return f"[{low}–{high}] {count}"


def times(ratio: float, within: Interval | None = None) -> str:
    """A ratio as `1.31×`; it has a third decimal if its interval is narrower than 4 %."""
    return f"{ratio:.{_ratio_decimals(ratio, within)}f}×"


def _ratio_decimals(ratio: float, within: Interval | None) -> int:
    narrow = within is not None and within.high - within.low < NARROW * ratio
    return 3 if narrow else 2


def between(interval: Interval, value: float, *, scale: float = 1.0) -> str:
    """A 95 % interval as `[1.22, 1.41]`, with the decimals of its figure.

    An interval has a comma and bounds the true value; a range has a dash and shows what was seen.
    """
    places = _decimals(interval, value, scale)
    low, high = (number(end * scale, places) for end in (interval.low, interval.high))
    return f"[{low}, {high}]"


def _decimals(interval: Interval, value: float, scale: float) -> int:
    """Decimals of a figure; if it is mostly chance, the decimals of its interval."""
    ends = (abs(interval.low), abs(interval.high))
    mostly_chance = abs(value) < (interval.high - interval.low) / 2
    return decimals_for(scale * (max(ends) if mostly_chance else value))


def span_of(ratio: Figure) -> str:
    """The interval of a ratio as `[1.22, 1.41]`; empty where there is none."""
    if ratio.interval is None or ratio.value is None:
        return ""
    places = _ratio_decimals(ratio.value, ratio.interval)
    return f"[{ratio.interval.low:.{places}f}, {ratio.interval.high:.{places}f}]"


def ratio_words(ratio: Figure) -> str:
    """A ratio with its interval, if it has one: `1.31× [1.22, 1.41]`."""
    if ratio.value is None:
        return NOTHING
    return f"{times(ratio.value, ratio.interval)} {span_of(ratio)}".rstrip()


def span_or_none(ratio: Figure) -> str:
    """The interval of a ratio for a cell; without an interval, the number of launches."""
    if ratio.value is None:
        return ratio.reason
    return span_of(ratio) or no_interval(ratio)


def no_interval(figure: Figure) -> str:
    """`one launch`, or `n=2, no interval`; `why_no_interval` gives the reason below the table."""
    return "one launch" if figure.n == 1 else f"n={figure.n}, no interval"


def why_no_interval(figures: Iterable[Figure]) -> str:
    """One sentence with each reason once; empty: every value has its interval."""
    reasons = [one.reason for one in figures if one.value is not None and one.interval is None]
    text = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return f"Where there is no interval: {text}." if text else ""


def outcome_of(outcome: Outcome) -> str:
    """An outcome as a reader sees it: `refused: needs a GPU`."""
    if outcome.completed:
        return "completed"
    kind = f"hung after {outcome.after_s:.0f} s" if outcome.kind == "hung" else outcome.kind
    return ": ".join(part for part in (kind, outcome.error_class, outcome.reason) if part)


def stack_name(stack: str) -> str:
    """A stack of `ringside allreduce`; `mpi` alone would be confused with Horovod's."""
    name, colon, settings = stack.partition(":")
    return f"bare MPI{colon}{settings}" if name == "mpi" else stack


def with_interval(figure: Figure, *, scale: float = 1.0) -> tuple[str, str]:
    """A figure as (value, interval and n), for a cell.

    A number has an interval, or the cell says that it has none; see `why_no_interval`.
    """
    if figure.value is None:
        return NOTHING, figure.reason
    if figure.interval is None:
        return number(figure.value * scale), no_interval(figure)
    value = number(figure.value * scale, _decimals(figure.interval, figure.value, scale))
    return value, f"{between(figure.interval, figure.value, scale=scale)} n={figure.n}"


def said(figure: Figure, unit: str) -> str:
    """A figure within a sentence: `1.20 ms [1.15, 1.25] n=7`, `3.50 ms (2 launches: too few)`."""
    value, note = with_interval(figure)
    if figure.interval:
        return f"{value} {unit} {note}"
    return f"{value} {unit} ({figure.reason or note})"
