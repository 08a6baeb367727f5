"""Certificates on a terminal, and the explanation of a certificate."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from ringside.report.blocks import Cell, Table, heads
from ringside.report.sections.proof import (
    answer_cell,
    certified_cell,
    checks_of,
    coverage_lines,
    deviation_cell,
    evaluation_cell,
    float32_checks,
)
from ringside.report.terminal import rich_table
from ringside_core.specs import Certificate, Check, Deviation
from ringside_core.text import listed, plain, plural, wrapped

PLACE_WIDTH = 18
TRAINED = ("weights", "slots", "replicas")  # kinds that only an update can change


# Certificates


def render_certificates(certificates: Sequence[Certificate]) -> RenderableType:
    """One row for each arm, at most 100 columns; below, why an arm is not certified."""
    rows = tuple(
        (
            Cell(one.arm.label),
            certified_cell(one, one.reason),
            _place(deviation_cell(checks_of(one, "float64"))),
            _place(deviation_cell(float32_checks(one))),
            answer_cell(checks_of(one, "ledger")),
            replace(evaluation_cell(one), note=""),
        )
        for one in certificates
    )
    columns = heads("<arm | <certified | <float64 | <float32 | <ledger | <evaluation")
    return rich_table(Table(columns, rows), below=_certified_below(certificates))


def _place(cell: Cell) -> Cell:
    """A cell whose note, the name of a variable, is wrapped."""
    return replace(cell, note=wrapped(cell.note, PLACE_WIDTH))


def _certified_below(certificates: Sequence[Certificate]) -> Text:
    passed = sum(one.passed for one in certificates)
    text = Text(f"{passed} of {plural(len(certificates), 'arm')} certified.")
    for arms, line in coverage_lines(certificates):
        text.append(plain(f"\n{arms}: {line}"))
    failed: dict[str, list[str]] = {}  # what stands in the way of several is said once
    for one in certificates:
        if not one.passed:
            failed.setdefault(one.reason, []).append(one.arm.label)
    for reason, labels in failed.items():
        text.append("\nnot certified  ", style="bold red")
        text.append(plain(f"{listed(labels, limit=len(labels))}: {reason}"))
    return text


# In full


def explain(certificate: Certificate) -> str:
    """Everything that a certificate says, and a hint at the cause of its first difference.

    After each step the largest deviation; the first above the tolerance is marked.
    """
    verdict = f"certified, {certificate.kind}" if certificate.passed else "not certified"
    lines = [
        f"{certificate.arm.label}: {verdict}, {plural(certificate.steps, 'step')}",
        f"run {certificate.spec.content_hash}",
    ]
    if certificate.obstacle:
        lines.append(f"obstacle: {certificate.obstacle}")
    if certificate.coverage:
        lines.append(certificate.coverage)
    for check in certificate.checks:
        lines += ["", *_explained(check)]
    if certificate.by_design:
        lines += ["", "differs on purpose, and how it was treated:"]
        lines += [f"  {one.layer}: {one.differs}; {one.treated}" for one in certificate.by_design]
    if hint := _hint(certificate):
        lines += ["", f"hint: {hint}"]
    return plain("\n".join(lines))


def _explained(check: Check) -> Iterator[str]:
    tolerance = "" if check.tolerance is None else f" (tolerance {check.tolerance:.0e})"
    yield f"{'passed' if check.passed else 'FAILED'}  {check.name}{tolerance}: {check.finding}"
    first = next(iter(_above(check)), None)
    by_step: dict[int, list[Deviation]] = {}
    for one in check.by_step:
        by_step.setdefault(one.step, []).append(one)
    lines = []  # the largest of each step; of the first step above the tolerance, all kinds
    for step, found in sorted(by_step.items()):
        most = max(found, key=lambda one: float("inf") if one.value is None else one.value)
        lines += found if first is not None and step == first.step else [most]
    for one in lines:
        size = "not a number" if one.value is None else f"{one.value:.1e}"
        when = f"step {one.step}" if one.step else "at start"
        mark = "  <-- first above the tolerance" if one is first else ""
        yield f"  {when:>8}  {size:>12}  {one.kind:<11}  {one.name}  ({one.task}){mark}"


def _above(check: Check) -> list[Deviation]:
    """All deviations above the tolerance in the order of cause."""
    if check.tolerance is None:
        return []
    tolerance = check.tolerance
    found = check.by_step or (() if check.worst is None else (check.worst,))
    above = [one for one in found if one.exceeds(tolerance)]
    return sorted(above, key=lambda one: (one.step, one.kind != "replicas"))


def _hint(certificate: Certificate) -> str:
    """The likely cause of the first difference; empty if nothing failed or nothing is known."""
    failed = [check for check in certificate.checks if not check.passed]
    if ledgers := [check.name for check in failed if "ledger" in check.name]:
        return (
            f"{listed(ledgers)}: other rows were trained, or in another order. Look at what draws "
            "or reads the data first; the other differences may follow from that."
        )
    check = next((check for check in failed if _above(check)), None)
    if check is None:
        return ""
    above = _above(check)
    first = next((one for one in above if one.kind in TRAINED), None)
    if first is None:
        return (
            "training agrees, and only the results computed from it differ: look at how examples "
            f"are counted and weighted in the {above[0].kind}, and how replicas are summed."
        )
    if above[0].step == 0:
        return (
            "the weights differ before the first step: the initial weights are not broadcast, or "
            "come from another seed."
        )
    if first.kind == "replicas":
        return "the replicas differ from each other: gradients or statistics are not reduced."
    if first.step == 1:
        return (
            "the weights differ after the first step: look at the gradients (summed, or not "
            "reduced) and at the optimizer (learning rate, wrapper)."
        )
    last = certificate.steps % first.step == 0
    return f"everything agrees until step {first.step}" + (
        ", which may be the last of an epoch: look at how its short last batch is divided and "
        "weighted."
        if last
        else ": look at what changes with time, such as a learning-rate schedule, the optimizer's "
        "state or a random stream."
    )
