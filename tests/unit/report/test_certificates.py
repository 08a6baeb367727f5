"""Certificates on a terminal, and what a certificate says in full."""

import pytest

from ringside.report.certificates import explain, render_certificates
from ringside_core.specs import Certificate, Deviation
from tests.unit.report.bout import mixed_bout
from tests.unit.report.proofs import COUNTED, answered, certificate, deviation, parity
from tests.unit.report.views import printed
from tests.unit.stats.factory import arm_of


def judged(*steps: Deviation) -> Certificate:
    """A certificate of 20 steps whose parity has these deviations."""
    one = certificate(arm_of("mirrored", 2), steps=20)
    return one.replace(checks=(parity("float64", *steps), *COUNTED))


def test_certificates_fit_a_terminal_and_say_why_not() -> None:
    """On 100 columns: each arm, its deviation, and below why it failed."""
    text = printed(render_certificates(mixed_bout().certificates))

    assert all(len(line) <= 100 for line in text.splitlines())
    assert "…" not in text
    assert text.count("3.1e-15") == 12  # all but the asynchronous and the failed one
    assert "13 of 14 arms certified." in text
    said = " ".join(text.split())
    assert "parameter_server ×2: Covers how many rows are trained, " in said
    assert (
        "not certified horovod:controller=mpi ×2: float64 parity: largest deviation 3.1e-02" in said
    )


def test_explanation_marks_the_first_step_above_the_tolerance() -> None:
    """All steps are in order and one is marked; exactly 1e-10 still passes."""
    text = explain(
        judged(
            deviation(3.0, 4),
            deviation(1e-10, 1),
            deviation(2e-10, 2, name="kernel of step 2"),
            deviation(0.5, 3),
        )
    )

    lines = [line for line in text.splitlines() if line.strip().startswith("step ")]
    assert [line.split()[1] for line in lines] == ["1", "2", "3", "4"]
    assert ["<--" in line for line in lines] == [False, True, False, False]
    assert "2.0e-10  weights      kernel of step 2  (rank-0)" in lines[1]
    assert "FAILED  float64 parity (tolerance 1e-10): largest deviation 3.0e+00" in text
    assert "passed  training ledger: each of 27 once" in text
    assert "dropout (Dropout): random masks differ between replicas" in text


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (
            [deviation(0.3, 0, kind="evaluation"), deviation(0.1, 1)],
            "initial weights are not broadcast",
        ),
        (
            [deviation(0.0, 0), deviation(0.2, 1)],
            "the weights differ after the first step: look at",
        ),
        (
            [deviation(0.2, 1), deviation(0.1, 1, kind="replicas")],
            "the replicas differ from each other",
        ),
        ([deviation(0.0, 9), deviation(0.2, 10), deviation(0.1, 11)], "short last batch"),
        ([deviation(0.0, 6), deviation(0.2, 7)], "learning-rate schedule"),
        (
            [deviation(0.0, 1), deviation(0.2, 20, kind="evaluation")],
            "examples are counted and weighted in the evaluation",
        ),
    ],
)
def test_hint_follows_where_the_difference_began(steps: list[Deviation], words: str) -> None:
    """The first difference shows what is wrong."""
    text = explain(judged(*steps))

    hint = next(line for line in text.splitlines() if line.startswith("hint: "))
    assert words in hint


def test_hint_of_a_ledger_comes_before_all_that_follows_from_it() -> None:
    """Other examples lead to other weights."""
    ledger = answered("training ledger", passed=False, finding="example 7 was never fed")
    one = judged(deviation(0.2, 1)).replace(checks=(parity("float64", deviation(0.2, 1)), ledger))

    assert "hint: training ledger: other rows were trained" in explain(one)
