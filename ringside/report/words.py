"""Numbers and names as a reader sees them; the same in every format."""

import math
import re
from collections.abc import Iterable, Sequence

from ringside.stats.intervals import Estimate, Interval
from ringside.stats.summary import Efficiency, Spread
from ringside.stats.verdicts import PairVerdict
from ringside_core.specs import Outcome

# What terminals obey and no page may hold: escape sequences, then all other control characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
NOTHING = "–"
NARROW = 0.04  # width of the interval of a ratio, of which two decimals would say too little


def plain(text: str) -> str:
    """The text without escape sequences and control characters; tab and newline stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def decimals_for(value: float) -> int:
    """Decimals that show at least three digits that count."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def number(value: float, decimals: int | None = None) -> str:
    """At least three digits that count, thousands apart: 12,345 and 0.0123."""
    places = decimals_for(value) if decimals is None else decimals
    return f"{value:,.{places}f}"


def gib(value: float) -> float:
    """Bytes in GiB, 2**30 bytes."""
    return value / 2**30


def range_of(spread: Spread, *, scale: float = 1.0) -> str:
    """Lowest and highest and how many: `[11.2–12.9] n=3`; never to be read as an interval.

    Both have the decimals of the median, so that they are comparable at a glance.
    """
    count = f"n={spread.n}" if spread.n == spread.of else f"n={spread.n} of {spread.of}"
    if spread.n == 1:
        return f"{count}, no range"
    places = decimals_for(spread.median * scale)
    low, high = (number(v * scale, places) for v in (spread.lowest, spread.highest))
    return f"[{low}–{high}] {count}"


def percent(value: Efficiency) -> str:
    """An efficiency of 0.87 as 87 %."""
    return NOTHING if value.value is None else f"{100 * value.value:.0f} %"


def share(value: float) -> str:
    """A share of 0.062 as 6.2 %; of 0.31 as 31 %; two digits that count."""
    if value == 0:
        return "0 %"
    places = max(0, 1 - math.floor(math.log10(abs(100 * value))))
    return f"{100 * value:.{min(places, 2)}f} %"


def times(ratio: float, within: Interval | None = None) -> str:
    """A ratio as `1.31×`; with a third decimal where its interval is narrower than 4 %."""
    return f"{ratio:.{_ratio_decimals(ratio, within)}f}×"


def _ratio_decimals(ratio: float, within: Interval | None) -> int:
    narrow = within is not None and within.high - within.low < NARROW * ratio
    return 3 if narrow else 2


def between(interval: Interval, value: float, *, scale: float = 1.0) -> str:
    """A 95 % interval as `[1.22, 1.41]`, with the decimals of its estimate.

    A comma, where a range has a dash: one bounds the truth, the other lists what was seen.
    """
    places = _decimals(interval, value, scale)
    low, high = (number(end * scale, places) for end in (interval.low, interval.high))
    return f"[{low}, {high}]"


def _decimals(interval: Interval, value: float, scale: float) -> int:
    """Decimals of an estimate: of one that is mostly chance, those of its interval."""
    ends = (abs(interval.low), abs(interval.high))
    mostly_chance = abs(value) < (interval.high - interval.low) / 2
    return decimals_for(scale * (max(ends) if mostly_chance else value))


def ratio_between(verdict: PairVerdict) -> str:
    """The interval of a ratio as `[1.22, 1.41]`; where there is none, the reason."""
    return span_of(verdict.ratio) or verdict.ratio.reason or verdict.reason


def span_of(ratio: Estimate) -> str:
    """The interval of a ratio as `[1.22, 1.41]`; empty where there is none."""
    if ratio.interval is None or ratio.value is None:
        return ""
    places = _ratio_decimals(ratio.value, ratio.interval)
    return f"[{ratio.interval.low:.{places}f}, {ratio.interval.high:.{places}f}]"


def span_or_none(ratio: Estimate) -> str:
    """The interval of a ratio for a cell; of a ratio without one how many rounds there were."""
    if ratio.value is None:
        return ratio.reason
    return span_of(ratio) or no_interval(ratio)


def no_interval(estimate: Estimate) -> str:
    """`n=2, no interval`, for a cell; `why_no_interval` says the reason once, below."""
    return f"n={estimate.n}, no interval"


def why_no_interval(estimates: Iterable[Estimate]) -> str:
    """One sentence with each reason once; empty: every value has its interval."""
    reasons = [one.reason for one in estimates if one.value is not None and one.interval is None]
    told = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return f"Where there is no interval: {told}." if told else ""


def covers(estimate: Estimate, value: float) -> bool:
    """Whether the interval holds this value; False too where there is no interval."""
    within = estimate.interval
    return within is not None and within.low <= value <= within.high


def duration(seconds: float) -> str:
    """`40 seconds`, `15 minutes`, `1.5 hours`."""
    for size_s, unit, least_s in ((3600, "hour", 6000), (60, "minute", 100), (1, "second", 0)):
        if seconds >= least_s:
            count = f"{seconds / size_s:.1f}".removesuffix(".0")
            return f"{count} {unit if count == '1' else unit + 's'}"
    raise AssertionError("no time is negative")


def outcome_of(outcome: Outcome) -> str:
    """An outcome as a reader sees it: `refused: needs a GPU`."""
    if outcome.completed:
        return "completed"
    kind = f"hung after {outcome.after_s:.0f} s" if outcome.kind == "hung" else outcome.kind
    return ": ".join(part for part in (kind, outcome.error_class, outcome.reason) if part)


def stack_name(stack: str) -> str:
    """A stack of `ringside allreduce`: `mpi` alone would be taken for Horovod's."""
    name, colon, settings = stack.partition(":")
    return f"bare MPI{colon}{settings}" if name == "mpi" else stack


def estimated(estimate: Estimate, *, scale: float = 1.0) -> tuple[str, str]:
    """An estimate as (value, interval and n), for a cell.

    A number has an interval, or says that it has none; `why_no_interval` says why, once.
    """
    if estimate.value is None:
        return NOTHING, estimate.reason
    if estimate.interval is None:
        return number(estimate.value * scale), no_interval(estimate)
    value = number(estimate.value * scale, _decimals(estimate.interval, estimate.value, scale))
    return value, f"{between(estimate.interval, estimate.value, scale=scale)} n={estimate.n}"


def said(estimate: Estimate, unit: str) -> str:
    """An estimate within a sentence: `1.20 ms [1.15, 1.25] n=7`, `3.50 ms (2 rounds: too few)`."""
    value, note = estimated(estimate)
    if estimate.interval:
        return f"{value} {unit} {note}"
    return f"{value} {unit} ({estimate.reason or note})"


def plural(count: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    endings = {"process": "processes"}
    return f"{count} {noun if count == 1 else endings.get(noun, noun + 's')}"


def listed(names: Sequence[str], *, limit: int = 6) -> str:
    """`a, b and c`; beyond the limit, how many more."""
    shown = list(names[:limit])
    if len(names) > limit:
        shown.append(f"{len(names) - limit} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + f" and {shown[-1]}"


def pieces(label: str) -> list[str]:
    """A long name, cut where a reader would break it: after `_`, `:`, `=`, `,`, `/` and spaces."""
    return [piece for piece in re.split(r"(?<=[_:=,/ ])", label) if piece]


def wrapped(label: str, width: int, *, max_lines: int = 99) -> str:
    """The name over several lines of at most `width`; a piece that is longer is cut.

    Of a name that needs more lines than there are, the middle is left out: its end tells sizes and
    options apart.
    """
    lines = [""]
    for piece in pieces(" ".join(plain(label).split())):
        for start in range(0, len(piece), width):
            part = piece[start : start + width]
            if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    if len(lines) > max_lines:
        end = "".join(lines).rstrip()[1 - width :]
        lines = [*lines[: max_lines - 1], "…" + end]
    return "\n".join(line.rstrip() for line in lines)
