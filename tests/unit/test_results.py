"""Results in Python: tables, a figure, and a command that refuses."""

import io
import math
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside import results
from ringside.report.source import RESULTS
from ringside.results import Certificates, Result
from ringside_core.specs import RefusalError
from tests.unit.report.bout import bout
from tests.unit.report.views import bout_view


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The made-up comparison, read from its folder."""
    folder = tmp_path_factory.mktemp("bout")
    (folder / RESULTS).write_text(bout().to_json(), encoding="utf-8")
    return ringside.load(folder)


def test_arms_have_what_the_report_says(result: Result) -> None:
    """Rates with their intervals; what has none is NaN."""
    summary = bout_view().summary
    table = result.arms

    assert [*table.index] == [row.arm.label for row in summary.arms]
    for row in summary.arms:
        rate, shown = row.mean_throughput, table.loc[row.arm.label]
        assert shown.examples_s == rate.value
        if rate.interval is None:
            assert math.isnan(shown.low)
        else:
            assert (shown.low, shown.high) == (rate.interval.low, rate.interval.high)
        assert shown.not_comparable_because == row.not_comparable_because
        assert shown.certified == (row.certificate is not None and row.certificate.passed)
    assert result.headline.startswith(bout_view().headline.sentence)


def test_pairs_and_runs_are_all_there(result: Result) -> None:
    """A row each."""
    summary = bout_view().summary

    assert len(result.pairs) == len(summary.pairs)
    assert len(result.runs) == len(bout().runs)
    assert {*result.runs.outcome} >= {"completed", "failed"}


def test_it_is_drawn(result: Result) -> None:
    """A figure and a table, without a display; words of users are no HTML."""
    drawn = io.BytesIO()
    result.figure().savefig(drawn, format="svg")

    assert b"horovod" in drawn.getvalue()
    assert "<table" in result._repr_html_()
    assert len(repr(result)) < 500
    assert "report.html" in result._repr_html_()


@pytest.mark.parametrize("command", [ringside.compare, ringside.verify])
def test_a_command_that_breaks_off_has_no_result(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback ends with 1, as a failed run does; what it left behind is no answer."""
    left = tmp_path / "half"
    left.mkdir()
    begun = bout().replace(ended_because="", runs=(), rounds=0)
    (left / RESULTS).write_text(begun.to_json(), encoding="utf-8")
    monkeypatch.setattr(results, "_run", lambda *typed: (left, "KeyError: 'x'"))

    with pytest.raises(RefusalError, match=r"must end with its results.*KeyError"):
        command()

    assert not Certificates(left, ()).passed


def test_flags_are_typed_before_the_words_of_a_script() -> None:
    """Behind -- all is the script's; several options are typed one by one."""
    flags = {"workload_option": ["a=1", "b=2"], "replicas": [1, 2], "verify": False, "why": True}

    assert [*results._typed(flags)] == [
        *("--workload-option", "a=1", "--workload-option", "b=2"),
        *("--replicas", "1,2", "--no-verify", "--why"),
    ]


def test_a_refusal_is_the_one_of_the_command(tmp_path: Path) -> None:
    """Flags are typed as their names say; nothing is left behind."""
    with pytest.raises(RefusalError, match="There is no backend of that name"):
        ringside.compare(backends=["mirored"], replicas=[1, 2], verify=False, output=tmp_path)

    assert [*tmp_path.iterdir()] == []
    with pytest.raises(RefusalError, match=r"nowhere"):
        ringside.load(tmp_path / "nowhere")
