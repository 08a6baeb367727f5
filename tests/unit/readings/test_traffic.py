"""Bytes that interfaces have sent, from a table as the kernel writes it."""

from pathlib import Path

from ringside_core.readings.traffic import sent_between, sent_bytes

# Columns after the name: eight of what was received, then bytes sent, packets, …
TABLE = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 1111       9    0    0    0     0          0         0     2222       9    0    0
  eth0:333333333333 5    0    0    0     0          0         0 444444444444  7    0    0
"""


def test_the_ninth_number_of_each_line_is_read(tmp_path: Path) -> None:
    """A long number may follow the colon of the name without a space."""
    table = tmp_path / "dev"
    table.write_text(TABLE)

    assert sent_bytes(table) == {"lo": 2222, "eth0": 444444444444}


def test_where_there_is_no_table_nothing_is_known(tmp_path: Path) -> None:
    """On a system other than Linux; no error, because the run is still timed."""
    assert sent_bytes(tmp_path / "missing") == {}


def test_only_interfaces_that_counted_all_the_while_are_told() -> None:
    """One disappeared, one appeared, one restarted: their traffic is unknown."""
    before = {"lo": 100, "gone": 5, "anew": 900, "idle": 7}
    after = {"lo": 350, "new": 80, "anew": 20, "idle": 7}

    assert sent_between(before, after) == {"lo": 250, "idle": 0}
