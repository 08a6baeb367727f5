"""All that a report says, before any format: a few sentences, then sections."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ringside.drill.cells import RESULT as DRILL
from ringside.drill.cells import Drill
from ringside.report.blocks import Folded, Section, Table, Terms
from ringside.report.sections.accuracy import accuracy_section
from ringside.report.sections.asynchrony import asynchrony_section
from ringside.report.sections.breakdown import Breakdowns, breakdown_section, breakdowns_of
from ringside.report.sections.caveats import caveats, caveats_section
from ringside.report.sections.choice import choice_section
from ringside.report.sections.communication import communication_section
from ringside.report.sections.definitions import definitions_section
from ringside.report.sections.environment import environment_section
from ringside.report.sections.failures import failures_section
from ringside.report.sections.headline import Headline, headline_of
from ringside.report.sections.input import input_section
from ringside.report.sections.noise import launches_line, noise_line, noise_section
from ringside.report.sections.proof import proof_section
from ringside.report.sections.resources import arm_resources, resources_section
from ringside.report.sections.safety import safety_section
from ringside.report.sections.speed import results_section, scaling_section, steps_section
from ringside.report.sections.tables import runs_table
from ringside.report.sections.timeline import timeline_section
from ringside.report.sections.tuning import tuning_section
from ringside.report.sections.verdicts import verdicts_section
from ringside.report.source import beside, digest_of
from ringside.stats.summary import Summary, summarize
from ringside_core.specs import Comparison
from ringside_core.specs.timeline import RESULT as TIMELINE
from ringside_core.specs.timeline import Timeline
from ringside_core.text import byte_size, listed, plural


@dataclass(frozen=True)
class View:
    """Everything that a report says, apart from the plots."""

    comparison: Comparison
    summary: Summary
    title: str
    lead: str
    headline: Headline  # who wins
    facts: tuple[tuple[str, str, bool], ...]  # question, answer, whether one may rely on it
    breakdown: Breakdowns | None  # parts of a step, for the plot too
    timeline: Timeline | None  # likewise
    sections: tuple[Section, ...]  # everything below the first screen, in order


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
    breakdown = breakdowns_of(comparison, summary)
    noise, proof = noise_section(comparison, summary), proof_section(summary)
    headline = headline_of(comparison, summary)
    drill = beside(Drill, folder, DRILL)
    timeline = beside(Timeline, folder, TIMELINE)
    sections = (  # in the order in which a reader asks
        verdicts_section(summary, headline.sentence),
        *choice_section(comparison, summary, headline, drill),
        *caveats_section(caveats(comparison, summary)),
        proof,
        results_section(summary),
        scaling_section(comparison, summary),
        steps_section(summary),
        breakdown_section(breakdown),
        *timeline_section(timeline),
        *input_section(comparison, summary),
        communication_section(comparison, summary, breakdown),
        accuracy_section(comparison, summary),
        *asynchrony_section(summary),
        noise,
        tuning_section(comparison, summary),
        resources_section(arm_resources(summary)),
        *safety_section(drill),
        *_not_run_section(comparison),
        *failures_section(comparison, folder),
        environment_section(comparison, digest or digest_of(comparison.to_json().encode())),
        definitions_section(),
        _order_section(runs_table(summary, folder)),
    )
    facts = (
        ("Same arithmetic?", proof.answer, proof.sure),
        ("Noise floor", noise_line(summary), noise.sure),
        ("Launches", launches_line(comparison, summary), bool(summary.launches.final)),
    )
    return View(
        comparison=comparison,
        summary=summary,
        title=comparison.name,
        lead=_lead(comparison, summary),
        headline=headline,
        facts=facts,
        breakdown=breakdown,
        timeline=timeline,
        sections=sections,
    )


def _lead(comparison: Comparison, summary: Summary) -> str:
    machine = comparison.machine
    arms = sum(not row.arm.twin_of for row in summary.arms)
    what = f"{plural(arms, 'arm')}, {plural(len(summary.launches.final), 'launch')} of the final"
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
    none = not any(row.comparable for row in summary.arms)
    return (
        f"{'No arm is comparable, so no arm is ranked. ' if none else ''}"
        f"{spec.workload}, {size}, {plural(spec.epochs, 'epoch')}, "
        f"{spec.precision}{_KERAS[shared.keras]}. {what} on {where}."
    )


_KERAS = {2: "", 3: ", Keras 3"}


def _not_run_section(comparison: Comparison) -> Iterator[Section]:
    if comparison.not_run:
        items = tuple((absent.label, absent.reason) for absent in comparison.not_run)
        answer = f"{plural(len(items), 'arm')} asked for cannot run here."
        yield Section("not-run", "What did not run?", "Not run", answer, (Terms(items),))


def _order_section(runs: Table) -> Section:
    return Section(
        "order",
        "In which order were runs started?",
        "Order",
        "The order is drawn for each launch, so that a slow phase of the machine hits all arms.",
        (Folded(f"All {plural(len(runs.rows), 'run')}", (runs,), ("report.html", "results.csv")),),
    )
