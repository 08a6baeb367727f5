"""Rounds: in which order their arms run, and when there are enough of them."""

import math
import random
import re
from dataclasses import dataclass

from ringside.stats.rounds import rounds_used
from ringside.stats.summary import summarize
from ringside_core.specs import Arm, Comparison, RefusalError, Rounds
from ringside_core.text import duration, percent, plural

DEFAULT_WIDTH = 0.05
DEFAULT_BUDGET_S = 300.0
DEFAULT_ROUNDS = 3
MOST_ROUNDS = 100
LEAST_WIDTH = 0.0001  # no machine is steadier
# Stopping when the intervals happen to be narrow favours moments at which the noise was
# underestimated. From this many rounds on, the intervals of three arms or more keep 94 % of
# coverage (docs/decisions/0005-verdicts.md).
ROUNDS_BEFORE_WIDTH = 5
FEW = 3  # arms
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class State:
    """How far an experiment is, after a whole round.

    Attributes:
        made: rounds, disturbed ones too.
        undisturbed: those of them in which nobody else used the machine.
        widest: the pair with the widest 95 % interval of interest, and its relative width; None:
            there is no interval yet.
        spent_s: time that the runs took so far.
        round_s: time that a round takes.
    """

    made: int
    undisturbed: int
    widest: tuple[str, float] | None
    spent_s: float
    round_s: float


def round_order(arms: tuple[Arm, ...], number: int, seed: int) -> tuple[Arm, ...]:
    """The arms in the order of round `number`: a function of the seed and the round alone.

    Each round is drawn anew, so that an arm does not always follow the same one. All arms run in
    each round, so that a slow spell of the machine is spread over all of them. With at most FEW
    arms the second round is the first one backwards: drawn orders would too often be equal, and
    then drift looks like a difference (docs/decisions/0005-verdicts.md).
    """
    backwards = number == 1 and len(arms) <= FEW
    shuffled = list(arms)
    random.Random(f"{seed}/{0 if backwards else number}").shuffle(shuffled)
    return tuple(reversed(shuffled) if backwards else shuffled)


def parse_width(text: str) -> float:
    """`2%` or `0.02` → 0.02: the width of a 95 % interval as a share of the ratio."""
    number, percent, rest = text.strip().replace(" ", "").partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not LEAST_WIDTH <= value < 1:
        advice = "Example: --interval-width 2%"
        if not percent and 1 <= value < 100:
            advice = f"Did you mean {number}%?"
        raise RefusalError(
            "--interval-width must be a share of at least 0.01 % and below 100 %.",
            received=repr(text),
            advice=advice,
        )
    return value


def parse_duration(text: str) -> float:
    """`90s`, `10m`, `1h`, `1h30m` → seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    whole = "".join(number + unit for number, unit in parts)
    seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
    if whole != text.strip() or not 0 < seconds < math.inf:
        raise RefusalError(
            "--budget must be a time with its unit: s, m or h.",
            received=repr(text),
            advice="Examples: --budget 90s, --budget 10m, --budget 1h",
        )
    return seconds


def rounds_asked(
    *, rounds: int | None, interval_width: str | None, budget: str | None, verify: bool
) -> Rounds:
    """What the flags ask for; None is a flag that was not given.

    A counted number of rounds is made, whatever they show. Without certificates nothing is ranked,
    so there is no interval to wait for.

    Raises:
        RefusalError: flags that contradict one another, or are no width or time.
    """
    if rounds is not None:
        flags = {"--interval-width": interval_width, "--budget": budget}
        given = [flag for flag, value in flags.items() if value is not None]
        if given:
            raise RefusalError(
                "Either count the rounds, or let them go on to an interval width or a budget.",
                received=f"--rounds {rounds} with {' and '.join(given)}",
                advice="Leave out one of them.",
            )
    if interval_width is not None and not verify:
        raise RefusalError(
            "Only certified arms are ranked, so only they have intervals to wait for.",
            received=f"--interval-width {interval_width} with --no-verify",
            advice="Leave out --no-verify, or use --rounds.",
        )
    if rounds is not None or not verify:
        least = rounds or DEFAULT_ROUNDS
        limit = None if budget is None else parse_duration(budget)
        return Rounds(least=least, most=2 * least, budget_s=limit)
    return Rounds(
        least=DEFAULT_ROUNDS,
        most=MOST_ROUNDS,
        interval_width=DEFAULT_WIDTH if interval_width is None else parse_width(interval_width),
        budget_s=DEFAULT_BUDGET_S if budget is None else parse_duration(budget),
    )


def spent_s(comparison: Comparison) -> float:
    """Total time of the runs, each from the start of its first process to the end of its last."""
    return sum(run.wall_s for run in comparison.runs)


def state_of(comparison: Comparison, *, spent_s: float) -> State:
    """How far a comparison is, after a whole round."""
    made = comparison.rounds
    per_run_s = spent_s / max(1, len(comparison.runs))
    return State(
        made=made,
        undisturbed=made - len(rounds_used(comparison).disturbed),
        widest=summarize(comparison).widest_of_interest(),
        spent_s=spent_s,
        round_s=per_run_s * len(comparison.arms),
    )


def why_end(asked: Rounds, state: State) -> str:
    """Why no other round is made, in one sentence; empty: another one is made.

    `asked.least` rounds are made, whatever they cost. Disturbed rounds are repeated, but no more
    than `asked.least` of them. Narrow intervals end nothing before ROUNDS_BEFORE_WIDTH.
    """
    if state.made < asked.least:
        return ""
    enough = state.undisturbed >= asked.least or state.made >= 2 * asked.least
    if enough and (why := _shown(asked, state)):
        return why
    if state.made >= asked.most:
        most = plural(asked.most, "round")
        verb = "is" if asked.most == 1 else "are"
        return f"{most} {verb} the most that {verb} made. {_still(asked, state)}".strip()
    if asked.budget_s is not None and state.spent_s + state.round_s > asked.budget_s:
        return (
            f"Another round of {duration(state.round_s)} would not fit into the budget of "
            f"{duration(asked.budget_s)}. {_still(asked, state)}"
        ).strip()
    return ""


def _shown(asked: Rounds, state: State) -> str:
    """Why the rounds that were made are enough; empty: they are not."""
    if asked.interval_width is None:
        disturbed = state.made - state.undisturbed
        if not disturbed:
            return "All rounds that were asked for were made."
        if state.undisturbed >= asked.least:
            return (
                "All rounds that were asked for were made undisturbed, and "
                f"{were(disturbed, 'more')} disturbed."
            )
        return (
            f"Of {state.made} rounds, twice as many as were asked for, {were(disturbed)} disturbed."
        )
    if state.widest is None:
        return "There is no interval to wait for: fewer than two arms can be compared."
    pair, width = state.widest
    used = state.undisturbed if state.undisturbed >= asked.least else state.made
    if width > asked.interval_width or used < ROUNDS_BEFORE_WIDTH:
        return ""
    return (
        f"Every 95 % interval of interest is at most {percent(asked.interval_width)} wide; the "
        f"widest, {pair}, is {percent(width)}."
    )


def _still(asked: Rounds, state: State) -> str:
    if asked.interval_width is None or state.widest is None:
        return ""
    pair, width = state.widest
    if math.isinf(width):
        return f"There is no interval yet for {pair}."
    if width <= asked.interval_width:
        return f"The widest interval, {pair}, is {percent(width)}."
    return (
        f"The widest interval, {pair}, is still {percent(width)}; {percent(asked.interval_width)} "
        "was asked for."
    )


def time_left_s(asked: Rounds, state: State) -> float:
    """About how long it will go on, estimated from the rounds made so far.

    The width of an interval falls as 1/√rounds. The budget limits the time, except for the least
    rounds, which are always made.
    """
    least = max(0, asked.least - state.made) * state.round_s
    if asked.interval_width is None:
        repeats = min(state.made - state.undisturbed, asked.least, asked.most - state.made)
        return max(least, (asked.least + max(0, repeats) - state.made) * state.round_s)
    needed = float(asked.least)
    if state.widest is not None:
        needed = state.made * (state.widest[1] / asked.interval_width) ** 2
        needed = max(needed, ROUNDS_BEFORE_WIDTH)
    rounds = max(0, math.ceil(min(needed, asked.most)) - state.made)
    wanted = rounds * state.round_s
    if asked.budget_s is not None:
        wanted = min(wanted, max(0.0, asked.budget_s - state.spent_s))
    return max(least, wanted)


def were(number: int, more: str = "") -> str:
    """`1 was`, `2 were`, `1 more was`."""
    return " ".join(filter(None, (str(number), more, "was" if number == 1 else "were")))


def width_of(widest: tuple[str, float]) -> str:
    """The widest interval in words: its width and the pair that it is of."""
    pair, width = widest
    return f"not there yet ({pair})" if math.isinf(width) else f"{percent(width)} ({pair})"
