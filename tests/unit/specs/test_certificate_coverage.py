"""A certificate says in one line what it covers and what not, from the checks that it has."""

import pytest

from ringside_core.specs import Check, Host
from tests.unit.report.proofs import BY_DESIGN, answered, certificate, deviation, failed
from tests.unit.stats.factory import arm_of

NEW = ("float32 single updates", "as timed", "resumed", "reference is plain Keras")


def with_checks(backend: str, *names: str) -> str:
    """The line of a certificate of two replicas that also has these checks."""
    one = certificate(arm_of(backend, 2), by_design=())
    seen = (deviation(0.0, 1), deviation(0.0, 2))
    more: tuple[Check, ...] = tuple(answered(name).replace(by_step=seen) for name in names)
    return one.replace(checks=(*one.checks, *more)).coverage


def test_what_was_not_checked_is_not_covered() -> None:
    """The certificate of an earlier version says so."""
    assert with_checks("horovod") == (
        "Covers the first 20 updates in float64, which rows are trained, in which order, that each "
        "gradient counts once. Not covered: each one by itself in float32; a run that is not "
        "watched; going on from a checkpoint; evaluation; a fault that the reference has too; "
        "updates after the first 20, but that losses of all epochs agree in a comparison; networks "
        "between hosts; speed."
    )


def test_each_check_adds_what_it_covers() -> None:
    """Nothing of it is left among what is not covered."""
    assert with_checks("horovod", *NEW) == (
        "Covers the first 20 updates in float64, the first 2 each by itself in float32, the run "
        "as it is timed, unwatched, in float64, which rows are trained, in which order, that each "
        "gradient counts once, going on after an epoch from its checkpoint, the reference, plain "
        "Keras. Not covered: evaluation; updates after the first 20, but "
        "that losses of all epochs agree in a comparison; networks between hosts; speed."
    )


def test_what_cannot_run_in_float64_is_said() -> None:
    """What stands for float64, and why."""
    one = certificate(arm_of("horovod", 2), by_design=(), not_in_float64="it names float32")

    assert one.coverage.startswith("Covers the first 20 updates in float32 to what rounding does,")
    assert "float64, because it names float32; " in one.coverage.partition("Not covered")[2]


@pytest.mark.parametrize(("hidden", "said"), [(0.1, False), (20.0, True)])
def test_what_rounding_hides_in_single_updates_is_said(hidden: float, said: bool) -> None:
    """They passed, and with so much hidden that it says little of weights."""
    one = certificate(arm_of("horovod", 2), by_design=())
    by_step = (deviation(0.0, 20),)
    single = answered("float32 single updates").replace(by_step=by_step, hidden=hidden)
    line = one.replace(checks=(*one.checks, single)).coverage

    where = (
        "weights after each one by itself in float32, where rounding hides 2,000 % of the "
        "largest update"
    )
    assert (where in line.partition("Not covered")[2]) == said
    assert ("each one by itself in float32, but for weights" in line) == said


def test_an_asynchronous_arm_has_a_line_of_its_own() -> None:
    """Its single updates have no right result, with one worker they do."""
    line = with_checks("parameter_server", "float64 parity", "one worker")

    assert line == (
        "Covers the first 20 batches in float64, where each update waits for the one before, one "
        "worker alone, update by update, how many rows are trained, how many updates they make, "
        "evaluation. Not covered: going on from a checkpoint; a fault that the reference has too; "
        "updates that do not wait for each other, which have no one right result; networks between "
        "hosts; speed."
    )
    assert "losses of all epochs" not in line


def test_random_layers_and_hosts() -> None:
    """Masks that are drawn by example in verification are not those of a timed run."""
    two = (Host(name="a", slots=1), Host(name="b", slots=1))
    one = certificate(arm_of("horovod", 2), by_design=(BY_DESIGN,), hosts=two)

    assert "which random numbers dropout (Dropout) draws" in one.coverage
    assert "networks" not in one.coverage
    assert "losses of all epochs" not in one.coverage
    assert "other elements than 1 in 7" in one.replace(every=7).coverage


@pytest.mark.parametrize("backend", ["horovod", "parameter_server"])
def test_what_did_not_pass_covers_nothing(backend: str) -> None:
    """No line that a reader could take for a promise."""
    assert failed(certificate(arm_of(backend, 2))).coverage == ""
