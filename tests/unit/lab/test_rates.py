"""Rates as tc writes them."""

import pytest

from ringside.lab import format_rate, parse_rate
from ringside_core.specs import RefusalError


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [
        ("1mbit", 10**6),
        ("10mbit", 10**7),
        ("100mbit", 10**8),
        ("1gbit", 10**9),
        ("2.5gbit", 2_500_000_000),
        ("10gbit", 10**10),
        ("100gbit", 10**11),
    ],
)
def test_a_rate_is_read_and_written(text: str, bits_per_s: int) -> None:
    """Decimal units, both ways."""
    assert parse_rate(text) == bits_per_s
    assert format_rate(bits_per_s) == text


@pytest.mark.parametrize(
    "text",
    """ 1 1g 1Gbit 1_gbit 1gbps -1gbit 1e3mbit 0mbit 0.5mbit 101gbit nanmbit 1gbit_ 1gibit १mbit
    1kbit 9999999mbit 1.gbit .5gbit""".replace("\n    ", " ").split(" "),
)
def test_nothing_else_is_a_rate(text: str) -> None:
    """One message shows what was received. `_` stands for white space."""
    text = text.replace("_", "\n")

    with pytest.raises(RefusalError, match="A rate must read like") as refused:
        parse_rate(text)

    assert refused.value.received == repr(text)
