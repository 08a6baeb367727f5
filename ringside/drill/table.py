"""A cell of a drill in words, and what the words mean."""

from ringside.drill.cells import Cell

COLUMNS = ("fault", "ended", "noticed", "back", "again", "rows", "weights")
MEANING = {
    "ended": "how the attempt ended; and how the run did, if it was not completed",
    "noticed": "seconds until every process of that attempt was gone; –: the attempt went on",
    "back": "seconds until the first update beyond the fault",
    "again": "updates before the fault that were made once more",
    "rows": "epochs of the last attempt with other rows than in the run without a fault",
    "weights": "largest difference from the run without a fault; async: there is no right result",
}


def row_of(cell: Cell) -> tuple[str, ...]:
    """The cells of one line, in the order of COLUMNS."""
    if cell.obstacle:
        return (cell.fault, f"not made: {cell.obstacle}", *["–"] * 5)
    return (
        cell.fault,
        _ended(cell),
        _seconds(cell.noticed_s),
        _seconds(cell.back_s),
        "–" if cell.again is None else str(cell.again),
        str(cell.other_rows) if cell.other_rows else "same",
        _weights(cell),
    )


def _ended(cell: Cell) -> str:
    kinds = [one.kind for one in cell.outcomes]
    if not kinds:
        return "gone"
    text = kinds[0] if cell.fault != "launcher-killed" else "killed"
    end = kinds[-1]
    return text if end == "completed" or len(kinds) == 1 else f"{text}, then {end}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _weights(cell: Cell) -> str:
    if not cell.exact:
        return "async"
    return "nothing left" if cell.deviation is None else f"{cell.deviation:.0e}"
