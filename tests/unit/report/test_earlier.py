"""Two comparisons of the same arms whose intervals do not meet: the later one says so."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ringside.report.earlier import with_earlier
from ringside.report.source import RESULTS
from ringside_core.specs import Comparison, write_whole
from tests.unit.report.judged import bare

SERIAL_S, MIRRORED_S = 1.0, 0.9
LATER_S = 600.0


def compared(horovod_s: float, **changes: object) -> Comparison:
    """A final of three arms, in which an epoch of 100 examples takes Horovod so long."""
    seconds: Mapping[tuple[str, int], float] = {
        ("serial", 1): SERIAL_S,
        ("mirrored", 2): MIRRORED_S,
        ("horovod", 2): horovod_s,
    }
    return bare(seconds, rounds=5).replace(**changes)


def now(folder: Path, before: Comparison | None) -> str:
    """The note of a comparison that another one stands beside."""
    (folder / "before").mkdir()
    if before is not None:
        write_whole(folder / "before" / RESULTS, before.to_json())
    later = compared(MIRRORED_S)
    later = later.replace(created_unix_s=later.created_unix_s + LATER_S)
    return " ".join(with_earlier(later, folder / "now").notes)


def test_a_contradiction_is_said(tmp_path: Path) -> None:
    """Twice as fast before, equal now: with the name, the time between, both speeds of serial."""
    note = now(tmp_path, compared(MIRRORED_S / 2, name="morning"))

    assert note.startswith("An earlier comparison contradicts this one: morning, 10 min before")
    found = re.search(r"found (\S+)× .* serial trained (\S+) examples/s then, (\S+) now", note)
    assert found
    ratio, then, today = map(float, found.groups())
    assert max(ratio, 1 / ratio) == pytest.approx(2, rel=0.03)
    assert (then, today) == pytest.approx((100, 100), rel=0.02)


@pytest.mark.parametrize(
    "before",
    [
        None,
        compared(MIRRORED_S),  # its interval meets that of now
        compared(MIRRORED_S / 2, ended_because=""),  # interrupted
        compared(MIRRORED_S / 2, created_unix_s=1_800_000_000.0),  # later
        compared(MIRRORED_S / 2).replace(certificates=()),
    ],
)
def test_nothing_is_said_of_others(tmp_path: Path, before: Comparison | None) -> None:
    """Of a comparison that agrees, that has not ended, that is later, or that is of other code."""
    assert not now(tmp_path, before)


def test_a_note_is_renewed(tmp_path: Path) -> None:
    """A comparison that went on does not keep what was said of it before."""
    (tmp_path / "before").mkdir()
    write_whole(tmp_path / "before" / RESULTS, compared(MIRRORED_S / 2).to_json())
    later = compared(MIRRORED_S, created_unix_s=1_700_000_600.0)
    noted = with_earlier(later, tmp_path / "now")

    assert len(noted.notes) == 1
    assert with_earlier(noted, tmp_path / "now").notes == noted.notes
    agreeing = noted.replace(runs=compared(MIRRORED_S / 2).runs)
    assert with_earlier(agreeing, tmp_path / "now").notes == ()
