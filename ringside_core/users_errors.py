"""What an error of a user's program says, in one line: what is wrong first, then where."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringside_core.specs.errors import RefusalError

_BEGINS = "Traceback (most recent call last)"
_PLACE = re.compile(r'\s*File "([^"]+)", line (\d+)')
_NODE = re.compile(r"\{\{[^}]*\}\} ?")  # of a graph, which its author never saw
_ARGUMENTS = re.compile(r"(?:Call a|A)rguments received")  # Keras 2, Keras 3
_BOLD = re.compile(r"\x1b\[\d*m")  # as Keras 3 tells what is wrong
_ATTRIBUTES = re.compile(r"= \w+\[[^\]]*\]")  # of an operation in a graph
_PLACE_BEHIND = re.compile(r" \([^()]*, line \d+\)$")
_ROOT = Path(__file__).resolve().parent.parent
# A user's program may stand in the checkout, as those in examples/ do.
_RINGSIDES = ("backends/", "launch/", "ringside/", "ringside_core/", "trainers/", "train.py")
_PACKAGES = tuple(own.rstrip("/") for own in _RINGSIDES if own.endswith("/"))
_NOT_THE_USERS = (
    *("/lib/python", "site-packages", "<frozen ", "<string>"),
    *(f"{_ROOT}/{own}" for own in _RINGSIDES),
)


def essence(text: str) -> str:
    """The line of an error's text that says what is wrong; empty: none does.

    Keras puts a line of its own before it, and the arguments of a call after it; AutoGraph puts the
    lines of a user's code before it, and a graph where each of its nodes was made.
    """
    lines = [line.strip() for line in _BOLD.sub("", _ARGUMENTS.split(text)[0]).split("\n")]
    lines = [line for line in lines if line and "encountered when" not in line]
    lines = [line for line in lines if not line.startswith("[[{{")]
    if not lines:
        return ""
    last = lines[0].startswith(("in user code", "Graph execution error"))
    return _NODE.sub("", lines[-1] if last else lines[0]).partition(" [Op:")[0]


def in_one_line(error: BaseException) -> str:
    """An exception's kind, and what is wrong."""
    return _said(type(error).__name__, str(error))


def _said(kind: str, text: str) -> str:
    sentence = essence(text)  # AutoGraph tells the kind once more
    return (
        sentence if sentence.startswith(f"{kind}: ") else ": ".join(filter(None, (kind, sentence)))
    )


def of_users(error: BaseException) -> str:
    """An exception in one line, with the user's line that it came from; all of one of Ringside's.

    Args:
        error: as it was caught.
    """
    if type(error).__module__.partition(".")[0] in _PACKAGES:
        return f"{type(error).__name__}: {error}"
    return last_error("".join(traceback.format_exception(error)))


def names_a_type(text: str) -> bool:
    """Whether an error is about the type of numbers: then another precision may help.

    Not where types are said of an operation or of a call's arguments only, or in a file's name.
    """
    said = _ATTRIBUTES.sub("", _PLACE_BEHIND.sub("", essence(text)))
    return any(word in said for word in ("float", "double", "half", "DT_", "dtype"))


def last_error(output: str) -> str:
    """What a process that failed said last.

    Args:
        output: its standard error.

    Returns:
        The error of its last traceback, and the user's line that it came from; without a traceback
        its last three lines.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.startswith(_BEGINS)]
    if not begins:
        return " / ".join(line.strip() for line in lines[-3:]) or "no output"
    trace = lines[begins[-1] + 1 :]
    ends = next((n for n, line in enumerate(trace) if not line.startswith(" ")), len(trace))
    kind, _, text = "\n".join(trace[ends:]).partition(":")
    said = _said(kind.strip().rpartition(".")[2], text)
    places = [found.groups() for line in trace if (found := _PLACE.match(line))]
    own = [place for place in places if not any(part in place[0] for part in _NOT_THE_USERS)]
    where = [f" ({file}, line {line})" for file, line in own[-1:]]
    return said + "".join(where)


@contextmanager
def refusals_as_they_are() -> Iterator[None]:
    """Autograph makes a StagingError of each error in a user's function."""
    try:
        yield
    except Exception as error:
        inner: BaseException | None = error
        while inner is not None and not isinstance(inner, RefusalError):
            inner = inner.__context__
        raise (inner or error) from None
