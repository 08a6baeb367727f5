"""What `ringside compare` says before it starts anything."""

from pathlib import Path

import pytest

import ringside.cli.main
from ringside.comparison import durations
from ringside.comparison.stages import announcement
from ringside_core.specs import Asked
from tests.unit.compare.made import SHARED, comparison_of


@pytest.mark.parametrize("flags", [[], ["--fresh"], ["--all-arms"]])
def test_dry_run_prints_the_arms_and_the_twin(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """If there will be one. It starts nothing."""
    code = ringside.cli.main.run(
        ["compare", "--backends", "mirrored,tpu", "--replicas", "2", "--dry-run", *flags]
    )

    assert code == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["serial ×1", "mirrored ×2", "tpu ×2", *["serial ×1 again"][: len(flags)]]


def test_what_will_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arms of the screening, the budget; of runs that are alone, how long they took before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    comparison = comparison_of("mirrored").replace(asked=Asked(budget_s=300.0))

    before = announcement(comparison)
    for arm, seconds in zip(comparison.arms, (100.0, 150.0), strict=False):
        durations.remember(SHARED.spec_of(arm), seconds)
    after = announcement(comparison)

    assert before[0] == "2 arms, screened once, then the final between the fastest: 5 min"
    assert before[1] == "each arm runs alone, to its own end; 3 launches are always made"
    assert "about 4.2 min for each of all arms once" in after[1]
    live = announcement(comparison.replace(live=True))
    assert live == ["2 arms, each started once, then the final of all of them: 5 min"]
    none = comparison.replace(asked=Asked(launches=0))
    assert announcement(none) == ["2 arms, screened once, no final: 4.2 min"]
