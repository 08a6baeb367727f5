"""Several asynchronous workers need the certificate of one: the same code, update by update."""

from ringside.verify.certify import with_one_worker
from tests.unit.report.proofs import certificate, failed
from tests.unit.stats.factory import arm_of

SEVERAL = certificate(arm_of("parameter_server", 2))
ALONE = certificate(arm_of("parameter_server", 1))


def test_one_worker_that_is_certified_is_a_check_of_several() -> None:
    """And it says that single updates were compared."""
    found = with_one_worker(SEVERAL, ALONE)

    assert found.passed
    assert found.checks[-1].name == "one worker"
    assert "the updates of one worker alone" in found.coverage


def test_one_worker_that_fails_takes_several_with_it() -> None:
    """With the reason that it failed for."""
    found = with_one_worker(SEVERAL, failed(ALONE))

    assert not found.passed
    assert found.reason.startswith(
        "one worker: with one worker, the same code is not certified: float64 parity: largest "
    )


def test_an_obstacle_stays_the_reason() -> None:
    """Without a reference nothing was checked at all."""
    blocked = SEVERAL.replace(checks=(), obstacle="there is no serial reference")

    assert with_one_worker(blocked, ALONE) == blocked
