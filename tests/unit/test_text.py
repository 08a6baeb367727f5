"""Numbers, sizes, times, lists and names as a reader sees them."""

import pytest

from ringside_core.text import (
    byte_size,
    duration,
    exact_byte_size,
    listed,
    number,
    plain,
    plural,
    wrapped,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (123.4, "123"),
        (0.96789, "0.968"),
        (0.0012345, "0.00123"),
        (0, "0"),
        (-12.34, "-12.3"),
    ],
)
def test_number(value: float, text: str) -> None:
    """At least three significant digits; commas between thousands."""
    assert number(value) == text


def test_plain_text_holds_nothing_that_a_terminal_obeys() -> None:
    """Colours, window titles, bells and backspaces are removed; tabs and newlines stay."""
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07é×\t\n\x07\x08\x9b") == "red é×\t\n"


def test_lists_and_plurals() -> None:
    """A long list says how many items are left out."""
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a", "b", "c"], limit=2) == "a, b and 1 more"
    assert (plural(1, "run"), plural(2, "process")) == ("1 run", "2 processes")


def test_long_names_break_where_a_reader_would() -> None:
    """After _ : = and spaces; a piece that is too long is cut; nothing is lost."""
    assert wrapped("multi_worker_mirrored ×2", 16) == "multi_worker_\nmirrored ×2"
    assert wrapped("x" * 25, 10) == "x" * 10 + "\n" + "x" * 10 + "\n" + "x" * 5
    assert wrapped("", 10) == ""
    assert wrapped("a" * 40 + " ×2", 10, max_lines=2) == "a" * 10 + "\n…" + "a" * 6 + " ×2"
    assert all(len(line) <= 12 for line in wrapped("a_bc:def=ghij,klmno pqrstu", 12).split("\n"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 s"), (9.64, "9.6 s"), (150, "2.5 min"), (5400, "90 min"), (7200, "2 h")],
)
def test_duration(seconds: float, text: str) -> None:
    """In the unit that a person would use."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1000, "1,000 B"),
        (6144, "6 KiB"),
        (1023 * 2**20, "1,023 MiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (67_430_000_000, "62.8 GiB"),
    ],
)
def test_byte_size(count: float, text: str) -> None:
    """In the units of the command line, with at most three digits after rounding."""
    assert byte_size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (8, "8 B"),
        (6144, "6 KiB"),
        (6148, "6,148 B"),
        (2**28, "256 MiB"),
        (2**32, "4 GiB"),
    ],
)
def test_exact_byte_size(count: int, text: str) -> None:
    """What was measured is never rounded: 6,148 B are not 6 KiB."""
    assert exact_byte_size(count) == text
