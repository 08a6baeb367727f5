"""Go on with a comparison that was interrupted: on the same machine, with the same code."""

from pathlib import Path

from compare.budget import MOST_ROUNDS, parse_duration, parse_precision
from compare.experiment import RESULTS
from measure.machine import machine_facts
from specs import Comparison, MachineFacts, RefusalError, Rounds
from verify import store

DIGITS = 12


def reopened(folder: Path, *, precision: str | None, budget: str | None) -> Comparison:
    """The comparison in a folder, ready to go on.

    Args:
        folder: in which its results are.
        precision: asked for anew; None: as before.
        budget: likewise.

    Raises:
        RefusalError: there is none, it is finished, or machine, packages or code are others now.
    """
    path = folder / RESULTS
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RefusalError(
            "--resume needs the folder of a comparison.",
            received=error,
            advice="Where nothing was measured yet, start the comparison again: certificates that "
            "were made are used again.",
        ) from None
    comparison = Comparison.from_json(text, origin=str(path))
    asked = _asked_anew(comparison, precision, budget)
    if comparison.ended_because and asked == comparison.asked:
        raise RefusalError(
            "This comparison is finished.",
            received=comparison.ended_because,
            advice="Give another --budget or --precision to make more rounds.",
        )
    if comparison.base is None:
        raise RefusalError(
            "This comparison is of an older version, which did not keep what it trained.",
            received=str(path),
            advice="Start a new one.",
        )
    _refuse_changes(comparison, machine_facts())
    return comparison.replace(asked=asked, ended_because="")


def _asked_anew(comparison: Comparison, precision: str | None, budget: str | None) -> Rounds:
    asked = comparison.asked
    if precision is not None:
        if not comparison.verify:
            raise RefusalError(
                "A precision is of arms that may be ranked, and those are certified.",
                received=f"--precision {precision} for a comparison made with --no-verify",
            )
        asked = asked.replace(precision=parse_precision(precision), most=MOST_ROUNDS)
    if budget is not None:
        asked = asked.replace(budget_s=parse_duration(budget))
    return asked


def _refuse_changes(comparison: Comparison, machine: MachineFacts) -> None:
    """Refuse to mix results of two machines, sets of packages, or versions of the code."""
    before, now = comparison.machine.model_dump(), machine.model_dump()
    for field, was in before.items():
        if was != now[field]:
            was_told, now_told = _difference(was, now[field])
            raise RefusalError(
                f"A comparison goes on where it began: {field} must be the same.",
                received=f"{now_told}, and it was {was_told}",
                advice="Start a new comparison here.",
            )
    if comparison.code_version != store.code_version():
        raise RefusalError(
            "A comparison goes on with the code with which it began.",
            received=f"code {store.code_version()[:DIGITS]}, and it was "
            f"{comparison.code_version[:DIGITS] or 'not written down'}",
            advice="Start a new comparison.",
        )
    for one in comparison.certificates:
        if why := store.stale(one, one.spec):
            raise RefusalError(
                "What was certified must still be so.",
                received=f"{one.arm.label}: {why}",
                advice="Start a new comparison.",
            )


def _difference(was: object, now: object) -> tuple[str, str]:
    """Both values; of two tables, those of the first key in which they differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(k for k in sorted({*was, *now}) if was.get(k) != now.get(k))
        return f"{key} {was.get(key, 'absent')}", f"{key} {now.get(key, 'absent')}"
    return repr(was), repr(now)
