"""Go on with a comparison that was interrupted: where it began, and with the same code."""

from pathlib import Path

from launch.remote.host_checks import machine_of
from ringside.compare.budget import DEFAULT_BUDGET_S, MOST_ROUNDS, parse_duration, parse_precision
from ringside.compare.circumstances import circumstances, refuse_other_circumstances
from ringside.compare.experiment import RESULTS, base_of, spec_of, spec_of_round
from ringside.compare.hosts import placement_of
from ringside.stats.summary import summarize
from ringside.verify import store
from ringside_core.specs import (
    Comparison,
    MachineFacts,
    RefusalError,
    Rounds,
    RunSpec,
)
from ringside_core.specs.noun import differences

DIGITS = 12


def reopened(folder: Path, *, precision: str | None, budget: str | None) -> Comparison:
    """The comparison in a folder, ready to go on.

    Args:
        folder: in which its results are.
        precision: asked for anew; None: as before.
        budget: likewise.

    Raises:
        RefusalError: there is none, it is finished, its runs are not those that it would have made,
            or machine, packages, code or circumstances are others now.
    """
    path = folder / RESULTS
    comparison = _read(path)
    if comparison.base is None:
        raise RefusalError(
            "This comparison is of an older version, which did not keep what it trained.",
            received=str(path),
            advice="Start a new one.",
        )
    asked = _asked_anew(comparison, precision, budget)
    if comparison.ended_because and asked == comparison.asked:
        raise RefusalError(
            "This comparison is finished.",
            received=comparison.ended_because,
            advice="Give another --budget or --precision to make more rounds, or write its report "
            f"again: ringside report {folder}",
        )
    _refuse_changes(comparison, machine_of(placement_of(comparison)))
    _refuse_other_runs(comparison, path)
    return comparison.replace(asked=asked, ended_because="")


def _read(path: Path) -> Comparison:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError(
            "--resume needs the folder of a comparison.",
            received=f"{path}: {error}" if isinstance(error, UnicodeDecodeError) else error,
            advice="Where nothing was measured yet, start the comparison again: certificates that "
            "were made are used again.",
        ) from None
    return Comparison.from_json(text, origin=str(path))


def _asked_anew(comparison: Comparison, precision: str | None, budget: str | None) -> Rounds:
    asked = comparison.asked
    if precision is not None:
        if not comparison.verify:
            raise RefusalError(
                "A precision is of arms that may be ranked, and those are certified.",
                received=f"--precision {precision} for a comparison made with --no-verify",
            )
        asked = asked.replace(
            precision=parse_precision(precision),
            most=max(MOST_ROUNDS, asked.least),
            budget_s=asked.budget_s or DEFAULT_BUDGET_S,  # counted rounds may have had none
        )
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
    if comparison.circumstances is not None:
        refuse_other_circumstances(comparison.circumstances, circumstances(base_of(comparison)))
    arms = {arm.label: arm for arm in comparison.arms}
    for one in comparison.certificates:
        if one.arm.label not in arms:
            why = "there is no such arm"
        else:
            due = spec_of(comparison, arms[one.arm.label])
            why = store.stale(one, due, placement_of(comparison))
        if why:
            raise RefusalError(
                "What was certified must still be so.",
                received=f"{one.arm.label}: {why}",
                advice="Start a new comparison.",
            )


def _refuse_other_runs(comparison: Comparison, path: Path) -> None:
    """Refuse runs and trials that this comparison would not have made."""
    arms = {arm.label: arm for arm in comparison.arms}
    for index, run in enumerate(comparison.runs):
        due = spec_of_round(comparison, arms[run.arm], run.round)
        _refuse_other_spec(f"{path}: runs.{index}.spec", run.spec, due)
    for index, trial in enumerate(comparison.trials):
        due = spec_of(comparison, trial.arm)
        _refuse_other_spec(f"{path}: trials.{index}.run.spec", trial.run.spec, due)
    try:
        summarize(comparison)
    except RefusalError as error:
        raise RefusalError(
            error.rule, received=f"{path}: {error.received}", advice=error.advice
        ) from None


def _refuse_other_spec(place: str, spec: RunSpec, due: RunSpec) -> None:
    if spec != due:
        found, wanted = (one.model_dump(mode="json") for one in (spec, due))
        where, has, should = next(differences(found, wanted))
        raise RefusalError(
            "Each run must be what its arm runs in that round.",
            received=f"{place}.{where}={has!r}, and it should be {should!r}",
            advice="Start a new comparison.",
        )


def _difference(was: object, now: object) -> tuple[str, str]:
    """Both values; of two tables, those of the first key in which they differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(k for k in sorted({*was, *now}) if was.get(k) != now.get(k))
        return f"{key} {was.get(key, 'absent')}", f"{key} {now.get(key, 'absent')}"
    return repr(was), repr(now)
