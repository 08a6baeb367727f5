"""The results.json of a comparison, read so that a refusal names the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specs import Comparison, RefusalError

RESULTS = "results.json"


def read_comparison(folder: Path) -> Comparison:
    """The comparison that a folder holds.

    Raises:
        RefusalError: there is none, or its file is damaged; with the file and the field.
    """
    return Comparison.from_json(read_text(folder / RESULTS), origin=str(folder / RESULTS))


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


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """A refusal of what a file holds says which file that is."""
    try:
        yield
    except RefusalError as error:
        received = f": {error.received}" if error.received is not None else ""
        raise RefusalError(error.rule, received=f"{file}{received}", advice=error.advice) from None
