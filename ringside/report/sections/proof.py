"""The proof that arms compute the same: certificates."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ringside.report.blocks import Block, Cell, Heading, Section, Table, Terms, Text, heads
from ringside.report.words import NOTHING
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Certificate, Check, Deviation
from ringside_core.text import listed, plural

NOT_COMPARABLE = "not comparable"
EVALUATION = ("evaluation", "prediction")


def proof_answer(summary: Summary) -> str:
    """Did they compute the same?"""
    return _answer(_once(summary))


def _once(summary: Summary) -> list[ArmRow]:
    """The arms without twins: a twin has the certificate of its arm."""
    return [row for row in summary.arms if not row.arm.twin_of]


def not_comparable(summary: Summary) -> tuple[tuple[str, str], ...]:
    """(arms, why they are not ranked), one for each reason."""
    by_reason: dict[str, list[str]] = {}
    for row in summary.arms:
        if not row.comparable and not row.arm.twin_of:
            by_reason.setdefault(row.not_comparable_because, []).append(row.arm.label)
    many = sum(not row.arm.twin_of for row in summary.arms)
    return tuple(
        (f"all {many} arms" if len(labels) == many > 2 else listed(labels, limit=many), reason)
        for reason, labels in by_reason.items()
    )


def coverage_lines(certificates: Sequence[Certificate]) -> tuple[tuple[str, str], ...]:
    """(arms, what their certificates cover and what not), one for each line."""
    arms: dict[str, list[str]] = {}
    for one in certificates:
        if one.passed:
            arms.setdefault(one.coverage, []).append(one.arm.label)
    return tuple((listed(labels, limit=len(labels)), line) for line, labels in arms.items())


# Certificates


def _answer(arms: Sequence[ArmRow]) -> str:
    certified = [row for row in arms if row.comparable]
    if not any(row.certificate for row in arms):
        return "Not known: no arm was verified, so no arm is ranked."
    if not certified:
        return f"No: of {plural(len(arms), 'arm')} none is certified, so no arm is ranked."
    agree = _agreement([row.certificate for row in certified if row.certificate])
    if len(certified) == len(arms):
        who = f"All {len(arms)} arms are" if len(arms) > 1 else "The only arm is"
        return f"Yes. {who} certified: {agree}."
    apart = [row.arm.label for row in arms if not row.comparable]
    return (
        f"{len(certified)} of {plural(len(arms), 'arm')} "
        f"{'is' if len(certified) == 1 else 'are'} certified: {agree}. "
        f"Not comparable, and not ranked: {listed(apart)}."
    )


def _agreement(certificates: Sequence[Certificate]) -> str:
    """How close the certified arms are to the serial run."""
    exact = [one for one in certificates if one.kind == "exact"]
    worst = [largest(checks_of(one, "float64")) for one in exact]
    found = [one for one in worst if one is not None and one.value is not None]
    said = []
    several = len({one.spec.arithmetic for one in certificates}) > 1
    serial = "the serial run" + (" of their own Keras and dtype policy" if several else "")
    if found and len(found) == len(exact):
        most = max(one.value or 0.0 for one in found)
        near = f"to {most:.1e} or better" if most else "to the last bit"
        verb = "agrees" if len(exact) == 1 else "agree"
        said.append(f"{len(exact)} {verb} with {serial} {near} in float64")
    elif exact:
        verb = "is" if len(exact) == 1 else "are"
        said.append(f"{len(exact)} {verb} equal to {serial} within rounding")
    if count := len(certificates) - len(exact):
        said.append(f"{count}, asynchronous, where each update waits for the one before")
    return "; ".join(said)


def _certificates_table(arms: Sequence[ArmRow]) -> Table:
    columns = (
        "<Arm | <Certified | <Float64 (largest deviation) | <Float32 (largest deviation) | "
        "<Ledger | <Evaluation, predictions | <Other checks | <Differs by design"
    )
    explained = any(not row.comparable for row in arms)
    rows = []
    for row in arms:
        cells = _certificate_cells(row.certificate)
        verdict = certified_cell(row.certificate, row.not_comparable_because)
        why = [Cell(row.not_comparable_because)] if explained else []
        rows.append((Cell(row.arm.label), verdict, *cells, *why))
    return Table(
        heads(columns + (" | <Why not" if explained else "")),
        tuple(rows),
        label="Certificates, one row for each arm",
        kind="proof",
    )


def certified_cell(certificate: Certificate | None, why_not: str) -> Cell:
    """Whether an arm is certified, and how."""
    if certificate is None:
        return Cell("no", "not verified", bad=True)
    if why_not:
        return Cell("no", "failed" if not certificate.passed else "not for these runs", bad=True)
    defined = ", data-parallel" if certificate.splitting else ""
    return Cell(certificate.kind, f"{certificate.steps} steps{defined}")


def _certificate_cells(certificate: Certificate | None) -> tuple[Cell, ...]:
    if certificate is None:
        return (Cell(NOTHING),) * 6
    count = len({one.layer for one in certificate.by_design})
    shown = checks_of(certificate, "float64", "float32", "ledger", *EVALUATION)
    others = [check for check in certificate.checks if check not in shown]
    return (
        deviation_cell(checks_of(certificate, "float64")),
        deviation_cell(float32_checks(certificate)),
        answer_cell(checks_of(certificate, "ledger")),
        evaluation_cell(certificate),
        replace(answer_cell(others), note=", ".join(check.name for check in others)),
        Cell(plural(count, "layer") if count else "nothing"),
    )


def checks_of(certificate: Certificate, *words: str) -> list[Check]:
    """The checks that have one of the words in their name."""
    return [one for one in certificate.checks if any(word in one.name for word in words)]


def float32_checks(certificate: Certificate) -> list[Check]:
    """Those whose deviations are of the size of an update, not shares of what rounding allows."""
    return checks_of(certificate, "float32 single") or checks_of(certificate, "float32")


def largest(checks: Iterable[Check]) -> Deviation | None:
    """The largest deviation of all; one that is not a number counts as the largest."""
    found = [check.worst for check in checks if check.worst is not None]
    return max(found, key=lambda d: float("inf") if d.value is None else d.value, default=None)


def deviation_cell(checks: Sequence[Check]) -> Cell:
    """The largest deviation and its place; if the checks have none, whether they passed."""
    worst = largest(checks)
    if worst is None:
        return answer_cell(checks)
    if worst.value == 0:
        return Cell("0", "equal to the last bit")
    size = "not a number" if worst.value is None else f"{worst.value:.1e}"
    bad = not all(check.passed for check in checks)
    return Cell(size, f"{worst.kind} {worst.name}, step {worst.step}", bad=bad)


def answer_cell(checks: Sequence[Check]) -> Cell:
    """Whether all of them passed."""
    if not checks:
        return Cell(NOTHING)
    failed = [check for check in checks if not check.passed]
    return Cell("failed" if failed else "passed", bad=bool(failed))


def evaluation_cell(certificate: Certificate) -> Cell:
    """Whether evaluation and predictions passed, in checks of their own or as a part of parity."""
    if own := checks_of(certificate, *EVALUATION):
        return answer_cell(own)
    # In float32 rounding builds up: there it is evaluated from the same states.
    where = "float32 single updates" if certificate.not_in_float64 else "float64 parity"
    parity = checks_of(certificate, where)
    if parity and all(check.passed for check in parity):
        return Cell("passed", f"in {where}")
    worst = largest(parity)
    if worst is not None and worst.kind in ("evaluation", "predictions"):
        return Cell("failed", f"in {where}", bad=True)
    return Cell(NOTHING)


def proof_section(summary: Summary) -> Section:
    """Certificates, and what the timed runs recorded."""
    arms, blocks = _once(summary), list[Block]()
    certificates = [row.certificate for row in arms if row.certificate]
    if coverage := coverage_lines(certificates):
        blocks.append(Terms(coverage))
    if certificates:
        blocks.append(
            Text("Before anything is timed, each arm trains on the same batches as the serial run.")
        )
        blocks.append(_certificates_table(arms))
    noted = ((x.layer, f"{x.differs}; {x.treated}") for one in certificates for x in one.by_design)
    if by_design := tuple(dict.fromkeys(noted)):
        blocks += [Heading("Differs on purpose, and how it was treated"), Terms(by_design)]
    blocks += [Heading("What the timed runs computed"), evidence_table(summary)]
    if losses := str(summary.losses):
        blocks.append(Text(losses))
    sure = all(row.comparable for row in arms)
    title, answer = "Did they compute the same?", _answer(arms)
    return Section("same", title, "Proof", answer, tuple(blocks), sure=sure)


def evidence_table(summary: Summary) -> Table:
    """What the records of the timed runs prove."""
    columns = heads("<Arm | Completed (of runs started) | <Same rows | <Replicas equal")
    rows = tuple(
        (
            Cell(row.arm.label),
            Cell(f"{row.completed} of {row.started}", bad=row.completed < row.started),
            Cell(row.same_rows, bad=row.same_rows == "no"),
            Cell(row.replicas_equal, bad=row.replicas_equal == "no"),
        )
        for row in summary.arms
    )
    return Table(columns, rows, label="What was computed, one row for each arm", kind="evidence")
