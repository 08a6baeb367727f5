"""One message for what a person did wrong: the rule, what was received, what to do."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

LONGEST_INPUT = 200  # characters of what was received that are shown


class RefusalError(Exception):
    """A request that Ringside refuses. Every entry point prints the message and exits with 2.

    Args:
        rule: what must hold, as a full sentence.
        received: what came instead.
        advice: what to do about it.
    """

    _keras_call_info_injected = True  # else Keras would put lines of its own around the sentence

    def __init__(self, rule: str, *, received: object = None, advice: str = "") -> None:
        self.rule = rule
        self.received = received
        self.advice = advice
        parts = [rule]
        if received is not None:
            parts.append(f"Received: {str(received).removesuffix('.')}.")
        if advice:
            parts.append(advice)
        super().__init__(" ".join(parts))


class PreemptedError(BaseException):
    """The training was asked to end early; it has ended where it can go on later.

    As KeyboardInterrupt, so that a script's `except Exception` does not train on with half a model.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> RefusalError:
    """Refuse a name that is not in a table, and suggest the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return RefusalError(
        f"There is no {kind} of that name.",
        received=repr(name),
        advice=f"{hint}Known: {', '.join(names)}.",
    )


def refusal_from_validation(error: ValidationError, noun: str, origin: str = "") -> RefusalError:
    """Turn pydantic's error into one refusal, with the whole path of the field.

    Args:
        error: of pydantic; only its first entry is used.
        noun: name of what was to be built.
        origin: the file that it was read from; empty: none.
    """
    first: dict[str, Any] = dict(error.errors(include_url=False)[0])
    place = ".".join(str(part) for part in first["loc"])
    refused = first.get("ctx", {}).get("refusal")
    if isinstance(refused, RefusalError):  # from our own validator: its words, and the place
        where = ": ".join(part for part in (origin, place) if part)
        if not where:
            return refused
        received = "" if refused.received is None else f": {refused.received}"
        return RefusalError(refused.rule, received=where + received, advice=refused.advice)
    what = f"{noun} in {origin}" if origin else noun
    message = str(first["msg"]).removeprefix("Value error, ")
    # For a missing field pydantic shows everything around it.
    received = "nothing" if first["type"] == "missing" else repr(first.get("input"))
    if len(received) > LONGEST_INPUT:
        received = received[:LONGEST_INPUT] + "…"
    return RefusalError(f"{what}: {place or noun}: {message}.", received=received)
