"""Are all runs of a results file there, each as it was written, and none besides them?"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ringside.report.differences import Difference
from ringside.report.source import RESULTS, read_text
from ringside.report.witnesses import Testimony
from ringside_core.specs import Comparison
from ringside_core.specs.noun import json_hash
from ringside_core.text import listed


def against_gaps(folder: Path, comparison: Comparison) -> Testimony:
    """Look for runs that were taken out, exchanged or changed since they were written.

    Positions and rounds must have no gaps, no folder may hold a run that the results lack, and each
    run must carry the hash of the one before it.
    """
    found = [*_positions(comparison), *_rounds(comparison), *_folders(folder, comparison)]
    note = ""
    if comparison.runs and all(run.previous is None for run in comparison.runs):
        note = (
            "The runs carry no hashes of each other: an older version wrote them. "
            "A run that was exchanged, or taken out together with its folder, is not seen."
        )
    else:
        found += _links(json.loads(read_text(folder / RESULTS)))
    return Testimony("runs in their order", len(comparison.runs), tuple(found), note)


def _positions(comparison: Comparison) -> Iterator[Difference]:
    """The first run that is not where it should be, if there is one."""
    for index, run in enumerate(comparison.runs):
        if run.position != index:
            yield Difference(RESULTS, f"runs.{index}.position", str(run.position), str(index))
            return


def _rounds(comparison: Comparison) -> Iterator[Difference]:
    """Arms without a run in a round; the last one may be half made if more were to come."""
    whole = comparison.rounds - (not comparison.ended_because)
    labels = [arm.label for arm in comparison.arms]
    for number in range(comparison.rounds):
        ran = {run.arm for run in comparison.runs if run.round == number}
        absent = [label for label in labels if label not in ran]
        if not ran or (absent and number < whole):
            told = "none" if not ran else f"none of {listed(absent)}"
            expected = f"a run of each of {len(labels)} arms"
            yield Difference(RESULTS, "rounds", f"{told} of round {number}", expected)


def _folders(folder: Path, comparison: Comparison) -> Iterator[Difference]:
    """Folders of runs that the results do not name.

    A comparison that can go on may have those of the run, or the live round, that was interrupted.
    """
    named = {PurePosixPath(run.log_dir).parent.as_posix() for run in comparison.runs}
    count = len(comparison.arms) if comparison.live else 1
    begun = range(len(comparison.runs), len(comparison.runs) + count)
    interrupted = () if comparison.ended_because else tuple(f"{one:03d}-" for one in begun)
    for place in sorted((folder / "runs").glob("*/")):
        name = place.relative_to(folder).as_posix()
        if name not in named and not place.name.startswith(interrupted):
            yield Difference(name, "the whole folder", "a run", f"none in {RESULTS}")


def _links(body: dict[str, Any]) -> Iterator[Difference]:
    """Hashes that are not those of the runs before them.

    They are of the JSON as it is in the file: a later version may give a run more fields.
    """
    runs: Sequence[dict[str, Any]] = body["runs"]
    ordered = sorted(enumerate(runs), key=lambda pair: pair[1]["position"])
    expected = ""
    for index, run in ordered:
        yield from _link(f"runs.{index}.previous", run.get("previous"), expected)
        expected = json_hash(run)
    yield from _link("last_run", body.get("last_run"), expected)


def _link(place: str, found: str | None, expected: str) -> Iterator[Difference]:
    if found != expected:
        should = f"{expected or 'nothing'} (the run before it)"
        yield Difference(RESULTS, place, found or "nothing", should)
