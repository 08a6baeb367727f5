"""What a certificate covers and what it does not, in one line of plain words."""

from collections.abc import Sequence
from typing import NamedTuple


class _Part(NamedTuple):
    """What a certificate may cover.

    Attributes:
        check: words of the name of the check that covers it.
        covered: what it covers.
        otherwise: what is not covered without it; empty: nothing that needs to be said.
    """

    check: str
    covered: str
    otherwise: str = ""


_FED = (
    _Part("training ledger", "which examples are fed", "which examples are fed"),
    _Part("fed elements", "what the examples that were drawn hold", "what the examples hold"),
    _Part("gradient once", "that each gradient counts once", "how often a gradient counts"),
    _Part("validation ledger", "evaluation", "evaluation"),
    _Part("plain Keras", "the serial run, by plain Keras", "a fault that the serial run has too"),
)
_EXACT = (
    _Part("float64 parity", "the first {steps} updates in float64"),
    _Part("single updates", "each one by itself in float32", "each one by itself in float32"),
    _Part("as timed", "the run as it is timed, unwatched", "a run that nobody watches"),
    _Part("resumed", "going on from a checkpoint", "going on from a checkpoint"),
    *_FED,
)
_STATISTICAL = (
    *_FED,
    _Part("as timed", "the run as it is timed, unwatched", "a run that nobody watches"),
    _Part("one worker", "the updates of one worker alone", "the updates of one worker alone"),
    _Part("convergence", "how far the loss falls over several seeds", "how far the loss falls"),
)


def coverage(
    checks: Sequence[str], *, exact: bool, steps: int, drawing: Sequence[str], hosts: int
) -> str:
    """One line: what is covered, and what is not.

    Args:
        checks: names of the checks that passed.
        exact: whether the updates have one right result.
        steps: updates that were compared.
        drawing: layers that draw random numbers.
        hosts: that were certified; 0: one machine.
    """
    covered, missing = [], []
    for part in _EXACT if exact else _STATISTICAL:
        if any(part.check in name for name in checks):
            covered.append(part.covered.format(steps=steps))
        elif part.otherwise:
            missing.append(part.otherwise)
    if drawing and not any("randomness" in name for name in checks):
        missing.append(f"which random numbers {', '.join(drawing)} draws")
    if exact:
        missing.append(f"updates after the first {steps}, but that losses of all epochs agree")
    else:
        missing.append("single updates of several workers, which have no one right result")
    missing += [*([] if hosts > 1 else ["networks between hosts"]), "speed"]
    return f"Covers {', '.join(covered)}. Not covered: {'; '.join(missing)}."
