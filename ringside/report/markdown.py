"""The report as Markdown: the same sentences and tables, for a pull request or an issue."""

import re
from collections.abc import Iterator

from ringside.report.blocks import (
    Block,
    Bullets,
    Cell,
    Folded,
    Heading,
    Output,
    Picture,
    Section,
    Table,
    Terms,
)
from ringside.report.view import View
from ringside_core.text import plain

# What Markdown or HTML would take for its own.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$@])")


def render_markdown(view: View) -> str:
    """The whole page; links go to files beside it."""
    parts = [
        f"# {escaped(view.title)}",
        escaped(view.lead),
        f"**{escaped(view.headline.line)}**",
        "\n".join(f"- {escaped(f'{question}: {answer}')}" for question, answer, _ in view.facts),
        "Plots are in [report.html](report.html).",
    ]
    for section in view.sections:
        parts += rendered_section(section)
    parts.append(
        "The same as data: [results.json](results.json), [results.csv](results.csv), "
        "[samples.csv](samples.csv)."
    )
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would obey."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(text).split())).replace("&", "&amp;")


def rendered_section(section: Section) -> Iterator[str]:
    """The paragraphs of one section: its title, its answer, and what it rests on."""
    yield f"## {escaped(section.title)}"
    yield f"**{escaped(section.answer)}**"
    for block in section.blocks:
        yield from rendered_block(block)


def rendered_block(block: Block) -> Iterator[str]:
    """The paragraphs of one block."""
    match block:
        case Table():
            yield _table(block)
        case Heading():
            yield f"### {escaped(block.text)}"
        case Terms():
            terms = ((escaped(term), escaped(meaning)) for term, meaning in block.items)
            yield "\n".join(f"- **{term}**: {meaning}" for term, meaning in terms)
        case Bullets():
            yield "\n".join(f"- {escaped(f'{what} {advice}')}" for what, advice, _ in block.items)
        case Output():
            yield from _output(block)
        case Picture():
            pass
        case Folded() if block.files:
            links = " and ".join(f"[{name}]({name})" for name in block.files)
            yield f"{escaped(block.summary)}: see {links}."
        case Folded():
            yield f"<details><summary>{escaped(block.summary)}</summary>"
            for inner in block.blocks:
                yield from rendered_block(inner)
            yield "</details>"
        case _:
            yield escaped(block.text)


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
    return " ".join(part for part in (main, escaped(cell.note), escaped(cell.word)) if part)


def _output(output: Output) -> Iterator[str]:
    if output.link:
        yield f"[All output]({output.link})"
    for task, lines in output.lines:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
        yield f"Last lines of {escaped(task)}:\n\n{fence}text\n{lines}\n{fence}"
