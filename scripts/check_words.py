"""Fail if a Python or Markdown file has a word that we do not use; each with its file and line.

They are of a dialect that grew here once; each has a usual word (CONTRIBUTING.md).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

WORDS = r"lets? off|told|anew|alike|whoever|nobody|in the place of|of one's own|of his"
# Words may be parts of names (`told_by`), and phrases may go on in the next line.
OLD = re.compile(rf"(?<![a-z])(?:{WORDS.replace(' ', chr(92) + 's+')})(?![a-z])", re.IGNORECASE)
SKIPPED = {"build", "runs"}


def found(root: Path) -> Iterator[str]:
    """`file:line: word` for each."""
    for file in sorted((*root.rglob("*.py"), *root.rglob("*.md"))):
        place = file.relative_to(root)
        skipped = any(part.startswith(".") or part in SKIPPED for part in place.parts)
        if skipped or file == Path(__file__).resolve():
            continue
        text = file.read_text(encoding="utf-8")
        for match in OLD.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{place}:{line}: {' '.join(match[0].split())}"


if __name__ == "__main__":
    sys.exit("\n".join(found(Path(__file__).resolve().parents[1])) or None)
