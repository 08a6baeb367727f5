"""What a certificate covers and what it does not, in one line of plain words."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringside_core.specs.certificate import Certificate

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


def coverage(of: "Certificate") -> str:
    """One line: what a certificate that passed covers, and what it does not."""
    checks = [check.name for check in of.checks if check.covered]
    obstacles = {
        c.name: c.finding.partition("not covered: ")[2] for c in of.checks if not c.covered
    }
    singles = [check for check in of.checks if check.name.endswith("single updates")]
    single = max((one.step for check in singles for one in check.by_step), default=0)
    bits = next((check.bits for check in of.checks if check.bits), None)
    narrow = f"{bits} bits" if bits else "float32"  # in what single updates were compared
    hidden = max((check.hidden or 0.0 for check in of.checks), default=0.0)
    drawing = sorted({one.layer for one in of.by_design if not one.split})
    exact, steps = of.kind == "exact", of.steps
    not_in_float64, splitting = of.not_in_float64, of.splitting
    covered, missing = [], []
    wide = "float32" if not_in_float64 else "float64"
    rounding = " to what rounding does" if not_in_float64 or of.amplifies else ""
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
    if bits:
        missing.append("how a loss scale changes, if there is one")
    if of.on_gpus and of.spec.precision == "float32":
        missing.append("TensorFloat-32, in which a GPU multiplies float32 when a run is timed")
    if drawing:
        missing.append(f"which random numbers {', '.join(drawing)} draws")
    if of.every > 1:
        missing.append(f"other elements than 1 in {of.every} before the last update")
    if drawing and exact:
        missing.append(f"updates after the first {steps}; random numbers after a restart")
    elif exact:
        in_comparison = "but that losses of all epochs agree in a comparison"
        missing.append(f"updates after the first {steps}, {in_comparison}")
    else:
        missing.append("updates that do not wait for each other, which have no one right result")
        if getattr(of.spec.options, "schedule", "") == "free":
            missing.append("that a free worker makes updates of others, from more of its own rows")
    missing += [*([] if len(of.hosts) > 1 else ["networks between hosts"]), "speed"]
    defined = ""
    if splitting:
        defined = (
            f" By design {', '.join(splitting)} is as data-parallel training defines it, from each "
            "replica's part of a batch; another number of replicas is another training."
        )
    return f"Covers {', '.join(covered)}. Not covered: {'; '.join(missing)}.{defined}"
