"""`ringside compare`: a wrong flag gets one message, exit code 2, and leaves nothing behind."""

from pathlib import Path

import pytest

import ringside.cli.main
from ringside.compare import durations
from ringside.compare.stages import announcement
from ringside_core.specs import Rounds
from tests.unit.compare.made import SHARED, comparison_of


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--interval-width", "2"], "Did you mean 2%?"),
        (["--precision", "2%"], "'float32', 'float64'"),
        (["--rounds", "3", "--budget", "10m"], "--rounds 3 with --budget"),
        (["--no-verify", "--interval-width", "2%"], "--interval-width 2% with --no-verify"),
        (["--deadline", "inf"], "not a number of seconds"),
        (["--backends", "serial:keras=3", "--keras", "3"], "must not be the same run"),
        (["--tuned", "--trials", "1"], "greater than or equal to 2"),
        (["--backends", "serial:servers=2"], "Settings of any arm:"),
        (["--resume", "nowhere", "--tuned", "-w", "a=1"], "Received: --tuned, --workload-option."),
    ],
)
def test_a_wrong_flag(
    flags: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message says the rule, what was received, and what to do."""
    monkeypatch.chdir(tmp_path)

    code = ringside.cli.main.run(["compare", *flags])

    said = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert words in said
    assert list(tmp_path.iterdir()) == []


def test_dry_run_prints_the_arms_and_the_twin(capsys: pytest.CaptureFixture[str]) -> None:
    """It starts nothing."""
    code = ringside.cli.main.run(
        ["compare", "--backends", "mirrored,tpu", "--replicas", "2", "--dry-run"]
    )

    assert code == 0
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert told == ["serial ×1", "mirrored ×2", "tpu ×2", "mirrored ×2 again"]


def test_the_estimate_is_from_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any, the first round will tell; a budget too small for the least is reported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = Rounds(least=3, most=100, interval_width=0.05, budget_s=300.0)
    comparison = comparison_of("mirrored").replace(asked=asked)

    before = announcement(comparison)
    for arm, seconds in zip(comparison.arms, (100.0, 150.0), strict=False):
        durations.remember(SHARED.spec_of(arm), seconds)
    after = announcement(comparison)  # the twin's run is that of its arm

    assert before[0] == after[0]
    assert "3 arms × at least 3 rounds" in before[0] and "at most 5.0 % wide or 5 min" in before[0]
    assert before[1] == "the first round will show how long a round takes"
    assert "about 6.7 min a round" in after[1] and "20 min for 3" in after[1]
    assert "more than the budget" in after[1]


def test_counted_rounds_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disturbed rounds are repeated, up to `most`; one round is written in the singular."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    comparison = comparison_of("mirrored").replace(asked=Rounds(least=1, most=2))

    assert announcement(comparison)[0] == "3 arms × 1 round, up to 2 if disturbed"
    assert announcement(comparison.replace(asked=Rounds(least=2, most=2)))[0] == "3 arms × 2 rounds"
