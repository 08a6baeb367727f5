"""What a person did wrong, said once: the rule, what was received, what to do."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError


class RefusalError(Exception):
    """A request that Ringside refuses. Every entry point prints it as it is and exits with 2.

    Args:
        rule: what must hold, as a full sentence.
        received: what came instead.
        advice: what to do about it.
    """

    def __init__(self, rule: str, *, received: object = None, advice: str = "") -> None:
        self.rule = rule
        self.received = received
        self.advice = advice
        parts = [rule]
        if received is not None:
            parts.append(f"Received: {received}.")
        if advice:
            parts.append(advice)
        super().__init__(" ".join(parts))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> RefusalError:
    """Refuse a name that is not in a table, and point at the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return RefusalError(
        f"There is no {kind} of that name.",
        received=repr(name),
        advice=f"{hint}Known: {', '.join(names)}.",
    )


def refusal_from_validation(error: ValidationError, noun: str) -> RefusalError:
    """Turn pydantic's report into one refusal; a refusal raised inside a validator passes whole."""
    first: dict[str, Any] = dict(error.errors()[0])
    field = ".".join(str(part) for part in first["loc"]) or noun
    message = str(first["msg"]).removeprefix("Value error, ")
    return RefusalError(f"{noun}: {field}: {message}.", received=repr(first.get("input")))
