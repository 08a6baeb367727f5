"""What a certificate covers and what it does not, in one line of plain words."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MOST_HIDDEN = 0.1  # of the largest update; more hides a mistake


class _Part(NamedTuple):
    """What a certificate may cover."""

    check: str  # words of the name of the check that covers it
    covered: str
    otherwise: str = ""  # what is not covered without it; empty: nothing that needs to be said


_COMMON = (
    _Part("resumed", "going on after an epoch from its checkpoint", "going on from a checkpoint"),
    _Part("evaluation", "evaluation", "evaluation"),
    _Part("plain Keras", "the reference, plain Keras", "a fault that the reference has too"),
)
_EXACT = (
    _Part("{wide} parity", "the first {steps} updates in {wide}{rounding}"),
    _Part(
        "single updates", "{single} by itself in {narrow}{but}", "each one by itself in {narrow}"
    ),
    _Part("as timed", "the run as it is timed, unwatched, in {wide}", "a run that is not watched"),
    _Part("training ledger", "which rows are trained, in which order", "which rows are trained"),
    _Part("gradient once", "that each gradient counts once"),
    *_COMMON,
)
_IN_TURN = (
    _Part(
        "{wide} parity",
        "the first {steps} batches in {wide}{rounding}, where each update waits for the one before",
    ),
    _Part("one worker", "one worker alone, update by update", "one worker alone"),
    _Part("training ledger", "how many rows are trained", "how many rows are trained"),
    _Part("counted updates", "how many updates they make", "how many updates are made"),
    *_COMMON,
)


def coverage(
    checks: Sequence[str],
    obstacles: Mapping[str, str],
    *,
    exact: bool,
    steps: int,
    single: int,
    narrow: str,
    hidden: float = 0.0,
    every: int,
    drawing: Sequence[str],
    splitting: Sequence[str],
    hosts: int,
    not_in_float64: str = "",
    on_gpus: bool = False,
    amplifies: bool = False,
) -> str:
    """One line: what is covered, and what is not.

    Args:
        checks: names of the checks that passed.
        obstacles: why other checks cover nothing, by name.
        exact: whether the updates have one right result.
        steps: updates that were compared.
        single: updates that were compared by themselves; of large models fewer.
        narrow: the precision in which they were.
        hidden: how much of the largest update of weights rounding hides in them.
        every: which elements of large models were compared after each update; 1: all.
        drawing: layers that draw random numbers.
        splitting: layers and steps that give something else when a batch is split.
        hosts: that were certified; 0: one machine.
        not_in_float64: why everything was compared in float32; empty: it was not.
        on_gpus: whether GPUs computed in float32; it was compared without TensorFloat-32.
        amplifies: whether the program amplifies rounding in float64, which was allowed for.
    """
    covered, missing = [], []
    wide = "float32" if not_in_float64 else "float64"
    rounding = " to what rounding does" if not_in_float64 or amplifies else ""
    alone = "each one" if single == steps else f"the first {single} each"
    said = {"steps": steps, "single": alone, "narrow": narrow, "wide": wide}
    but = ", but for weights" if hidden > MOST_HIDDEN else ""
    for part in _EXACT if exact else _IN_TURN:
        if any(part.check.format(wide=wide) in name for name in checks):
            covered.append(part.covered.format(**said, rounding=rounding, but=but))
        elif part.otherwise:
            why = [said for name, said in obstacles.items() if said and part.check in name]
            missing.append(", as ".join([part.otherwise.format(narrow=narrow), *why]))
    if hidden > MOST_HIDDEN:
        where = f"rounding hides {hidden * 100:,.0f} % of the largest update"
        missing.append(f"weights after {alone} by itself in {narrow}, where {where}")
    if not_in_float64:
        missing.append(f"float64, because {not_in_float64}")
    if "bits" in narrow:
        missing.append("how a loss scale changes, if there is one")
    if on_gpus:
        missing.append("TensorFloat-32, in which a GPU multiplies float32 when a run is timed")
    if drawing:
        missing.append(f"which random numbers {', '.join(drawing)} draws")
    if every > 1:
        missing.append(f"other elements than 1 in {every} before the last update")
    if drawing and exact:
        missing.append(f"updates after the first {steps}; random numbers after a restart")
    elif exact:
        in_comparison = "but that losses of all epochs agree in a comparison"
        missing.append(f"updates after the first {steps}, {in_comparison}")
    else:
        missing.append("updates that do not wait for each other, which have no one right result")
    missing += [*([] if hosts > 1 else ["networks between hosts"]), "speed"]
    defined = ""
    if splitting:
        defined = (
            f" By design {', '.join(splitting)} is as data-parallel training defines it, from each "
            "replica's part of a batch; another number of replicas is another training."
        )
    return f"Covers {', '.join(covered)}. Not covered: {'; '.join(missing)}.{defined}"
