"""A made-up comparison with markup in every string that somebody else may have written."""

from typing import Any

from ringside_core.specs import Comparison, NotRun, Noun, Outcome
from tests.unit.report.proofs import BY_DESIGN, answered, certificate, deviation, parity
from tests.unit.stats.factory import MACHINE, arm_of, comparison_of, epoch, record, run_of, spec_of

MARKUP = "<script>alert('x')</script>"
LONG = "unbroken" * 30
HERE = MACHINE.replace(host="made-up-command", cpu_model="made-up-command")


def hostile() -> Comparison:
    """The same with markup in every string that somebody else may have written."""
    poisoned: Comparison = _poisoned(_two_arms())
    return poisoned


def _poisoned(value: Any) -> Any:
    if isinstance(value, Noun):
        changed = {name: _poisoned(held) for name, held in value}
        return value.replace(**{k: v for k, v in changed.items() if v != getattr(value, k)})
    if isinstance(value, tuple):
        return tuple(_poisoned(held) for held in value)
    if isinstance(value, str):
        for word in ("serial-label", "made-up-workload", "made-up-error", "made-up-command"):
            value = value.replace(word, f"{word} {MARKUP} | `x` [a](b) & $x^$ \x1b[31m{LONG}")
    return value


def _two_arms() -> Comparison:
    serial = arm_of("serial").replace(label="serial-label", group="serial-label")
    tail = arm_of("mirrored", 2)
    specs = {
        arm.label: spec_of(arm.backend, arm.replicas, workload="made-up-workload")
        for arm in (serial, tail)
    }
    lost = Outcome(
        kind="failed",
        error_class="made-up-error",
        reason="made-up-error",
        traceback="made-up-error",
    )
    epochs = [epoch(1.0), epoch(1.0), epoch(1.2)]
    runs = [
        run_of(serial, [record(specs[serial.label], epochs, machine=HERE)]),
        run_of(tail, [record(specs[tail.label], epochs, machine=HERE)], position=1),
        run_of(
            tail,
            [record(specs[tail.label], [], outcome=lost, machine=HERE)],
            number=1,
            position=2,
            outcome=lost,
        ),
    ]
    differing = deviation(0.5, name="made-up-workload", task="made-up-command")
    certificates = (
        certificate(serial, specs[serial.label], code_version="made-up-command", machine=HERE),
        certificate(
            tail,
            specs[tail.label],
            checks=(
                parity("float64", differing),
                answered("made-up-error", passed=False, finding="made-up-error"),
            ),
            by_design=(
                BY_DESIGN.replace(
                    layer="made-up-workload", differs="made-up-error", treated="made-up-error"
                ),
            ),
        ),
    )
    return comparison_of(
        [serial, tail],
        runs,
        certificates=certificates,
        name="made-up-command",
        command="made-up-command",
        machine=HERE,
        not_run=(NotRun(label="serial-label", reason="made-up-error"),),
    )
