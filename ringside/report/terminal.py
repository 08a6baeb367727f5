"""Tables of a report on a terminal; `html` and `markdown` show the same tables elsewhere."""

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from ringside.report.blocks import Cell, Table
from ringside_core.text import plain, wrapped

LABEL_WIDTH = 24


def rich_table(
    table: Table,
    *,
    title: str = "",
    below: Text | None = None,
    label_width: int = LABEL_WIDTH,
    notes_beside: bool = False,
) -> RichTable:
    """A table as rich prints it. Cells are text, never markup, which a label may contain.

    Args:
        table: what is shown.
        title: a line above it.
        below: text under it.
        label_width: characters at which the first cell of a row is wrapped.
        notes_beside: whether the note of a cell is on the same line.
    """
    rich = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=plain(title) or None,
        title_justify="left",
        caption=below,
        caption_justify="left",
        caption_style="",
    )
    for column in table.columns:
        head = plain(f"{column.name}\n{column.note}" if column.note else column.name)
        # Fold, never crop: a number that lost a digit is another number.
        rich.add_column(Text(head), justify="right" if column.numeric else "left", overflow="fold")
    first_apart = len(table.rows) - table.apart
    for place, (label, *cells) in enumerate(table.rows):
        if table.apart and place == first_apart:
            rich.add_section()
            rich.add_row(Text("not comparable:", style="bold"))
        texts = [_text(cell, " " if notes_beside else "\n") for cell in cells]
        named = Cell(wrapped(label.main, label_width), label.note, bad=label.bad)
        rich.add_row(_text(named, "\n"), *texts, style="dim" if place >= first_apart else "")
    return rich


def _text(cell: Cell, between: str) -> Text:
    text = Text(plain(cell.main), style="red" if cell.bad else "dim" * (cell.tone == "empty"))
    if cell.note:
        text.append(between + plain(cell.note), style="dim")
    return text
