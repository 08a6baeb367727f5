"""Reads the results.json of a comparison; a refusal names the file. Digests of results and code."""

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from ringside_core.code_version import code_version
from ringside_core.readings.machine import package_versions
from ringside_core.specs import Comparison, Document, RefusalError

RESULTS = "results.json"
# What decides how a report reads: Ringside's code (tests/setup/test_rooms.py checks that this code
# imports nothing else of Ringside), and the packages that compute and draw.
COVERED = (
    "ringside/drill/__init__.py",
    "ringside/drill/cells.py",
    "ringside/report",
    "ringside/stats",
    "ringside_core/code_version.py",
    "ringside_core/readings/cgroups.py",
    "ringside_core/readings/machine.py",
    "ringside_core/specs",
    "ringside_core/text.py",
)
PACKAGES = ("numpy", "scipy", "matplotlib", "jinja2")


class Results(NamedTuple):
    """The content of a results.json, and its SHA-256 as `sha256sum` prints it."""

    comparison: Comparison
    digest: str


def read_results(folder: Path) -> Results:
    """The comparison in a folder, and the digest of its file.

    Raises:
        RefusalError: there is none, or its file is damaged; with the file and the field.
    """
    file = folder / RESULTS
    text = read_text(file)
    return Results(Comparison.from_json(text, origin=str(file)), digest_of(text.encode()))


def read_comparison(folder: Path) -> Comparison:
    """The comparison in a folder; see `read_results`."""
    return read_results(folder).comparison


D = TypeVar("D", bound=Document)


def beside(kind: type[D], folder: Path | None, name: str) -> D | None:
    """What was written beside a comparison by another command; None: nothing.

    Args:
        kind: of document.
        folder: of the comparison; None: there is none.
        name: of the file.

    Raises:
        RefusalError: a file that cannot be read.
    """
    if folder is None or not (folder / name).exists():
        return None
    return kind.from_json(read_text(folder / name), origin=name)


def read_text(file: Path) -> str:
    """The text of one file of a comparison.

    Raises:
        RefusalError: it is not there, or is no text.
    """
    try:
        return file.read_bytes().decode()  # not read_text: it would turn \r\n into \n
    except (OSError, UnicodeDecodeError) as error:
        again = f"`ringside report {file.parent}` writes it again."
        raise RefusalError(
            f"The folder must hold the {file.name} of a comparison.",
            received=f"{file}: {error}" if isinstance(error, UnicodeDecodeError) else error,
            advice="`ringside compare` writes one." if file.name == RESULTS else again,
        ) from None


def digest_of(raw: bytes) -> str:
    """SHA-256 of the bytes of a results.json, 64 hexadecimal digits."""
    return hashlib.sha256(raw).hexdigest()


@functools.cache
def report_version() -> str:
    """SHA-256 of the code that computes and writes a report, 64 hexadecimal digits.

    It covers Ringside's files and the versions of the packages. The same code writes the same pages
    for one folder, byte by byte.
    """
    packages = [f"{name}=={version}" for name, version in package_versions(PACKAGES).items()]
    return digest_of("\n".join([*packages, code_version(COVERED)]).encode())


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Adds the name of the file to a refusal of its content."""
    try:
        yield
    except RefusalError as error:
        received = f": {error.received}" if error.received is not None else ""
        raise RefusalError(error.rule, received=f"{file}{received}", advice=error.advice) from None
