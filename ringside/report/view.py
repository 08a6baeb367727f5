"""All that a report says, before any format: a few sentences, then sections."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ringside.report.blocks import Caveat, Folded, Section, Table, Terms
from ringside.report.ranking import counted_runs
from ringside.report.sections.accuracy import accuracy_section
from ringside.report.sections.breakdown import Breakdowns, breakdown_section, breakdowns_of
from ringside.report.sections.caveats import caveats, caveats_section
from ringside.report.sections.communication import communication_section
from ringside.report.sections.definitions import definitions_section
from ringside.report.sections.environment import environment_section
from ringside.report.sections.failures import Failure, failures, failures_section
from ringside.report.sections.headline import Headline, headlines
from ringside.report.sections.noise import noise_line, noise_section, rounds_line
from ringside.report.sections.proof import Proof, not_comparable, proof_of, proof_section
from ringside.report.sections.resources import arm_resources, resources_section
from ringside.report.sections.safety import safety_section
from ringside.report.sections.speed import results_section, scaling_section, steps_section
from ringside.report.sections.tables import evidence_table, results_table, runs_table
from ringside.report.sections.tuning import tuning_section
from ringside.report.sections.verdicts import verdicts_section
from ringside.report.source import digest_of
from ringside.stats.summary import Summary, summarize
from ringside_core.specs import Comparison
from ringside_core.text import byte_size, listed, plural


@dataclass(frozen=True)
class View:
    """Everything that a report says, apart from the plots.

    Attributes:
        headlines: who wins at each size, largest first.
        facts: the evidence behind the headlines: (question, answer, whether one may rely on it).
        not_comparable: (arms, why they are not ranked).
        sections: everything below the first screen, in order.
        breakdown: parts of a step, for the plot too; None: not measured.
        digest: SHA-256 of results.json.
    """

    comparison: Comparison
    summary: Summary
    title: str
    lead: str
    headlines: tuple[Headline, ...]
    facts: tuple[tuple[str, str, bool], ...]
    quality: str
    proof: Proof
    not_comparable: tuple[tuple[str, str], ...]
    caveats: tuple[Caveat, ...]
    results: Table
    evidence: Table
    runs: Table
    failures: tuple[Failure, ...]
    sections: tuple[Section, ...]
    breakdown: Breakdowns | None
    digest: str

    def section(self, name: str) -> Section:
        """The section of this name."""
        return next(one for one in self.sections if one.name == name)


def view_of(comparison: Comparison, folder: Path | None = None, *, digest: str = "") -> View:
    """Everything that a report says about a comparison.

    Args:
        comparison: the records.
        folder: where its logs are; None: they are neither read nor linked.
        digest: SHA-256 of its results.json; empty: of what would be written.

    Raises:
        RefusalError: the records contradict each other, see `ringside.stats.summary.summarize`.
    """
    summary = summarize(comparison)
    proof = proof_of(summary)
    view = View(
        comparison=comparison,
        summary=summary,
        title=comparison.name,
        lead=_lead(comparison, summary),
        headlines=headlines(summary),
        facts=tuple(_facts(comparison, summary, proof)),
        quality=_quality(summary),
        proof=proof,
        not_comparable=not_comparable(summary),
        caveats=tuple(caveats(comparison, summary)),
        results=results_table(summary),
        evidence=evidence_table(summary),
        runs=runs_table(summary, folder),
        failures=tuple(failures(comparison, folder)),
        sections=(),
        breakdown=breakdowns_of(comparison, summary),
        digest=digest or digest_of(comparison.to_json().encode()),
    )
    return replace(view, sections=tuple(_sections(view, folder)))


def _sections(view: View, folder: Path | None) -> Iterator[Section]:
    """In the order in which a reader asks his questions."""
    comparison, summary = view.comparison, view.summary
    yield verdicts_section(summary)
    yield from caveats_section(view.caveats)
    yield proof_section(comparison, view.proof, view.evidence)
    yield results_section(summary, view.results, view.not_comparable)
    yield scaling_section(comparison, summary)
    yield steps_section(summary)
    yield breakdown_section(view.breakdown)
    yield communication_section(comparison, summary, view.breakdown)
    yield accuracy_section(comparison, summary, view.quality)
    yield noise_section(comparison, summary)
    yield tuning_section(comparison, summary)
    yield resources_section(arm_resources(summary), summary)
    yield from safety_section(folder)
    yield from _not_run_section(comparison)
    yield from failures_section(view.failures)
    yield environment_section(comparison, view.digest)
    yield definitions_section()
    yield _order_section(view.runs)


def _lead(comparison: Comparison, summary: Summary) -> str:
    machine = comparison.machine
    arms = sum(not row.arm.twin_of for row in summary.arms)
    what = f"{plural(arms, 'arm')} × {plural(comparison.rounds, 'round')}"
    if twins := sum(bool(row.arm.twin_of) for row in summary.arms):
        what += f", {twins} of them twice"
    if summary.breakdown_arms:
        what += f", {plural(len(summary.breakdown_arms), 'breakdown arm')}"
    where = (
        f"{machine.host}: {plural(machine.cores, 'core')} of {machine.cpu_model}, "
        f"{byte_size(machine.memory_bytes)}"
    )
    if machine.gpus:
        where += f", {listed(machine.gpus)}"
    if not summary.runs:
        return f"{what}, no run, on {where}."
    spec, shared = summary.runs[0].run.spec, comparison.shared
    size = (
        f"batch {shared.per_replica_batch} for each replica"
        if shared.global_batch is None
        else f"global batch {shared.global_batch}"
    )
    nobody = not any(row.comparable for row in summary.arms)
    return (
        f"{'No arm is comparable, so no arm is ranked. ' if nobody else ''}"
        f"{spec.workload}, {size}, {plural(spec.epochs, 'epoch')}, "
        f"{spec.precision}{_KERAS[shared.keras]}{_TRAINED[shared.trained_by]}. {what} on {where}."
    )


_KERAS = {2: "", 3: ", Keras 3"}
_TRAINED = {"fit": "", "loop": ", trained by a written-out loop"}


def _facts(
    comparison: Comparison, summary: Summary, proof: Proof
) -> Iterator[tuple[str, str, bool]]:
    """What the first screen shows beside the verdicts."""
    noise = noise_section(comparison, summary)
    yield "Same arithmetic?", proof.answer, proof.certain
    yield "Noise floor", noise_line(summary), noise.sure
    yield "Rounds", rounds_line(comparison, summary), not summary.rounds.kept_disturbed


def _quality(summary: Summary) -> str:
    if summary.quality_target is None:
        return ""
    completed = sum(counted_runs(summary, row) for row in summary.arms)
    spreads = [row.spreads["time_to_target_s"] for row in summary.arms]
    reached = sum(spread.n for spread in spreads)
    return (
        f"The target, {summary.quality_metric} ≥ {summary.quality_target:g}, was reached in "
        f"{reached} of {completed} completed runs."
    )


def _not_run_section(comparison: Comparison) -> Iterator[Section]:
    if comparison.not_run:
        items = tuple((absent.label, absent.reason) for absent in comparison.not_run)
        answer = f"{plural(len(items), 'arm')} that was asked for cannot run here."
        if len(items) > 1:
            answer = f"{len(items)} arms that were asked for cannot run here."
        yield Section("not-run", "What did not run?", "Not run", answer, (Terms(items),))


def _order_section(runs: Table) -> Section:
    return Section(
        "order",
        "In which order were runs started?",
        "Order",
        "The order is drawn anew in each round, so that a slow phase of the machine hits all arms.",
        (Folded(f"All {plural(len(runs.rows), 'run')}", (runs,), ("report.html", "results.csv")),),
    )
