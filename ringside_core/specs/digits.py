"""Whole numbers as text, before `int` is asked."""

LONGEST = 18


def is_whole_number(text: str) -> bool:
    """Whether this is a number in plain digits that fits into 64 bits.

    `str.isdigit` also takes `²`, which `int` refuses, and the digits of other scripts; and `int`
    refuses more than 4,300 digits.
    """
    return text.isascii() and text.isdigit() and len(text) <= LONGEST
