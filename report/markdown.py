"""The report as Markdown: the same sentences and tables, for a pull request or an issue."""

import re
from collections.abc import Sequence

from report.cells import Cell, Table
from report.definitions import DEFINITIONS, NO_INTERVALS
from report.failures import Failure
from report.view import View
from report.words import plain, plural

# What Markdown or HTML would take for its own.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$@])")


def render_markdown(view: View) -> str:
    """The whole page; links go to files beside it."""
    parts = [
        f"# {escaped(view.title)}",
        escaped(view.lead),
        f"Did they compute the same? {escaped(view.proof.answer)}",
        "## Highest median throughput at each size",
        *_findings(view),
    ]
    parts += ["## Did they compute the same?", *_proof(view)]
    if view.caveats:
        parts += ["## Know before you decide", "\n".join(f"- {escaped(c)}" for c in view.caveats)]
    parts += [
        "## Results",
        _table(view.results),
        *_not_comparable(view),
        "Plots are in [report.html](report.html).",
        "## What was computed",
        _table(view.evidence),
    ]
    if view.comparison.not_run:
        parts += ["## Not run", _listed([(a.label, a.reason) for a in view.comparison.not_run])]
    if view.failures:
        parts += ["## Runs that did not complete", *map(_failure, view.failures)]
    parts += [
        "## Environment",
        _listed(view.machine),
        _table(view.resources),
        "## How each number is defined",
        "\n".join(f"- **{escaped(term)}**: {escaped(meaning)}" for term, meaning in DEFINITIONS),
        "## Order of runs",
        _table(view.runs),
        "The same as data: [results.json](results.json), [results.csv](results.csv).",
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would obey."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(text).split())).replace("&", "&amp;")


def _findings(view: View) -> list[str]:
    found = []
    for one in view.findings:
        found.append(
            f"- {plural(one.replicas, 'replica')}: **{escaped(one.arm)}**, {one.throughput} "
            f"examples/s {escaped(one.range)}. {escaped(one.sentence)}"
        )
        found += [
            f"  - {escaped(f'{family}: {arm}, {much} {span}')}"
            for family, arm, much, span in one.best_of
        ]
    quality = f" {escaped(view.quality)}" if view.quality else ""
    return ["\n".join(found) or "No comparable arm has a throughput.", NO_INTERVALS + quality]


def _proof(view: View) -> list[str]:
    proof = view.proof
    parts = [f"**{escaped(proof.answer)}**"]
    if view.comparison.certificates:
        parts.append(_table(proof.table))
    if proof.by_design:
        parts += ["Differs by design, and was allowed for:", _listed(proof.by_design)]
    if one := proof.detection:
        parts += [
            "### Would a mistake be caught?",
            f"**{escaped(one.answer)}**",
            f"Deliberate mistakes, each made in each arm where it can be. {escaped(one.origin)}",
            _table(one.table),
        ]
        if one.notes:
            parts.append(_listed([(f"note {number}", text) for number, text in one.notes]))
        if one.alarms:
            parts += ["False alarms:", "\n".join(f"- {escaped(alarm)}" for alarm in one.alarms)]
    return parts


def _not_comparable(view: View) -> list[str]:
    if not view.not_comparable:
        return []
    return ["Not comparable, because:", _listed(view.not_comparable)]


def _listed(terms: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- {escaped(term)}: {escaped(meaning)}" for term, meaning in terms)


def _table(table: Table) -> str:
    heads = [
        escaped(f"{column.name} ({column.note})" if column.note else column.name)
        for column in table.columns
    ]
    rules = ["---:" if column.numeric else ":---" for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    if table.apart:
        head = ["**Not comparable, and not ranked**", *[""] * (len(heads) - 1)]
        rows.insert(len(rows) - table.apart, head)
    lines = [heads, rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    main = escaped(cell.main)
    if cell.link:
        main = f"[{main}]({cell.link})"
    return f"{main} {escaped(cell.note)}" if cell.note else main


def _failure(failure: Failure) -> str:
    parts = [f"### {escaped(failure.arm)}, round {failure.round}", escaped(failure.outcome)]
    if failure.link:
        parts.append(f"[All output]({failure.link})")
    for task, lines in failure.lines:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
        parts.append(f"Last lines of {escaped(task)}:\n\n{fence}text\n{lines}\n{fence}")
    return "\n\n".join(parts)
