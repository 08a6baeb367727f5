"""Rates of links, written as `tc` writes them: 10mbit, 2.5gbit."""

import re

from ringside_core.specs import RefusalError

_RATE = re.compile(r"(?P<number>[0-9]{1,6}(\.[0-9]{1,6})?)(?P<unit>[mg]bit)")
_UNITS = {"gbit": 1_000_000_000, "mbit": 1_000_000}  # tc: decimal, per second
SLOWEST_BITS_PER_S = 1_000_000
FASTEST_BITS_PER_S = 100_000_000_000


def parse_rate(text: str) -> int:
    """Bits per second of `100mbit` or `2.5gbit`.

    Raises:
        RefusalError: another form, or outside 1mbit to 100gbit.
    """
    match = _RATE.fullmatch(text)
    bits = round(float(match["number"]) * _UNITS[match["unit"]]) if match else 0
    if not SLOWEST_BITS_PER_S <= bits <= FASTEST_BITS_PER_S:
        raise RefusalError(
            "A rate must read like 100mbit or 2.5gbit, from 1mbit to 100gbit.",
            received=repr(text),
            advice="mbit is 1,000,000 bits per second, gbit 1,000 times that.",
        )
    return bits


def format_rate(bits_per_s: int) -> str:
    """As `parse_rate` reads it: 1000000000 is 1gbit.

    The kernel keeps whole bytes per second, so a rate read back may be rounded by 7 bits/s.
    """
    unit = "gbit" if bits_per_s >= _UNITS["gbit"] else "mbit"
    return f"{bits_per_s / _UNITS[unit]:.6f}".rstrip("0").rstrip(".") + unit
