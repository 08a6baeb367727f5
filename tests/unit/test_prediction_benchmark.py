"""benchmarks/prediction.py: what is predicted from, and the table that is printed."""

from pathlib import Path

import pytest

from benchmarks.prediction import (
    BACKENDS,
    SMALL_WIDTH,
    Bench,
    filling_width,
    markdown,
    predicted,
    sizes_of,
)
from ringside.predict.prediction import Checked, PredictedStep
from ringside_core.specs import Placement
from tests.unit.predict import predicted as made


def test_what_is_checked_by_is_not_predicted_from() -> None:
    """What four replicas took changes the error, not the prediction."""
    of = {four: made.comparison({1: 0.1, 2: 0.16, 4: four}) for four in (0.15, 0.9)}

    found = {four: predicted(runs, made.communication())[0] for four, runs in of.items()}

    assert found[0.15].predicted == found[0.9].predicted
    assert found[0.9].measured_ms == pytest.approx(900, rel=0.01)
    assert found[0.15].error > 0 > found[0.9].error


def test_a_row_has_every_figure() -> None:
    """Predicted 110 ms, measured 100: 10 % too slow, and outside 105 to 120."""
    step = PredictedStep(
        replicas=4, hosts=4, global_batch=64, step_ms=110.0, low_ms=105.0, high_ms=120.0
    )
    one = Checked(label="horovod", predicted=step, measured_ms=100.0, rounds=2)

    row = markdown([("large", "100mbit", one)]).splitlines()[2]

    assert row == "| large | 100mbit | horovod | 110 | 105 – 120 | 100 | +10.0 % | no |"


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (filling_width(10_000_000), 1.25e6),  # a second
        (filling_width(1_000_000_000), 32e6),
        (SMALL_WIDTH, 1.2e6),
    ],
)
def test_gradients_lie_between_the_sizes_that_are_timed(width: int, expected: float) -> None:
    """Otherwise the curve would be guessed beyond its ends. Weights are counted by layer."""
    convolutions = (27 + 1) * width + 2 * (9 * width + 1) * width
    gradient = 4 * (convolutions + (width + 1) * 10)

    sizes = sizes_of(width)

    assert min(sizes) == 2048
    assert max(sizes) > gradient > sizes[-2]
    assert gradient == pytest.approx(expected, rel=0.05)


def test_the_all_reduces_of_every_arm_are_made() -> None:
    """With the arm's settings; bare MPI is there for the latency, servers reduce nothing."""
    bench = Bench(Placement(), f"{BACKENDS},horovod:controller=mpi", 1, Path("unused"))

    assert bench.stacks == (
        "mpi", "horovod gloo",
        "horovod mpi:btl_tcp_flags=9:btl_tcp_eager_limit=4194304"
        ":coll_tuned_allreduce_algorithm=ring",
        "tf.distribute RING", "horovod mpi",
    )  # fmt: skip
    assert {arm.replicas for arm in bench.arms(2, 4)} == {2, 4}
