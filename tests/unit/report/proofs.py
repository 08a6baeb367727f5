"""Made-up certificates: input for tests, never a proof."""

from collections.abc import Callable
from typing import Any

from ringside.certificates import store
from ringside_core.specs import (
    Arm,
    ByDesign,
    Certificate,
    Check,
    Comparison,
    Deviation,
    RunSpec,
    capabilities_of,
)
from tests.unit.stats.factory import MACHINE, spec_of

TOLERANCE = {"float64": 1e-10, "float32": 4e-5}
BY_DESIGN = ByDesign(
    layer="dropout (Dropout)",
    differs="random masks differ between replicas",
    treated="masks were drawn for each example",
)


def deviation(value: float | None, step: int = 2, **changes: Any) -> Deviation:
    """The place where an arm differs most."""
    fields: dict[str, Any] = {
        "value": value,
        "kind": "weights",
        "name": "002 dense/kernel:0",
        "step": step,
        "task": "rank-0",
    }
    return Deviation(**{**fields, **changes})


def parity(precision: str, *by_step: Deviation) -> Check:
    """What the gate says of these deviations."""
    worst = max(by_step, key=lambda one: float("inf") if one.value is None else one.value)
    return Check(
        name=f"{precision} parity",
        passed=not worst.exceeds(TOLERANCE[precision]),
        finding=f"largest deviation {worst}",
        tolerance=TOLERANCE[precision],
        worst=worst,
        by_step=by_step,
    )


def answered(name: str, *, passed: bool = True, finding: str = "each of 27 once") -> Check:
    """A check that measures nothing."""
    return Check(name=name, passed=passed, finding=finding)


COUNTED = (answered("training ledger"), answered("each gradient once"))


def certificate(arm: Arm, spec: RunSpec | None = None, **changes: Any) -> Certificate:
    """A certificate that passes; of several asynchronous workers, in turn."""
    exact = capabilities_of(arm.backend).synchronous or arm.replicas == 1
    checks = (
        (
            parity("float64", deviation(0.0, 0), deviation(3.1e-15, 1), deviation(2.0e-15, 2)),
            *COUNTED,
            parity("float32", deviation(0.0, 0), deviation(1.5e-6, 1), deviation(1.2e-6, 2)),
        )
        if exact
        else (answered("training ledger"), answered("counted updates"), answered("evaluation"))
    )
    fields: dict[str, Any] = {
        "arm": arm,
        "spec": spec or spec_of(arm.backend, arm.replicas, options=arm.options),
        "kind": "exact" if exact else "in turn",
        "steps": 20,
        "code_version": "c0de" * 16,
        "machine": MACHINE,
        "orders": store.orders(),
        "created_unix_s": 1_700_000_000.0,
        "checks": checks,
        "by_design": (BY_DESIGN,) if arm.replicas > 1 else (),
    }
    return Certificate(**{**fields, **changes})


def verified(comparison: Comparison) -> Comparison:
    """The comparison with a certificate for each arm that is ranked, of what its first run was."""
    specs = {run.arm: run.spec for run in reversed(comparison.runs)}
    return comparison.replace(
        certificates=tuple(
            certificate(arm, specs.get(arm.label))
            for arm in comparison.arms
            if not (arm.for_breakdown or arm.twin_of)
        )
    )


def failed(one: Certificate) -> Certificate:
    """The same arm, whose gradients were added up where their mean was meant."""
    found = parity("float64", deviation(0.0, 0), deviation(0.03125, 1))
    return one.replace(checks=(found, *COUNTED))


def recertified(
    comparison: Comparison, label: str, change: Callable[[Certificate], Certificate | None] = failed
) -> Comparison:
    """The comparison in which the certificate of one arm has changed; None: it is gone."""
    found = (change(one) if one.arm.label == label else one for one in comparison.certificates)
    return comparison.replace(certificates=tuple(one for one in found if one))


def without_backend(comparison: Comparison, backend: str) -> Comparison:
    """The comparison without the arms of a backend."""
    arms = tuple(arm for arm in comparison.arms if arm.backend != backend)
    labels = tuple(arm.label for arm in arms)
    return comparison.replace(
        arms=arms,
        runs=tuple(run for run in comparison.runs if run.arm in labels),
        certificates=tuple(one for one in comparison.certificates if one.arm.label in labels),
        finalists=labels,
    )
