"""One digest of Ringside's code, for whatever must not outlive a change of it."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = (".py", ".j2", ".css")


def code_version(covered: Iterable[str] = (), *, root: Path = ROOT) -> str:
    """SHA-256 of Ringside's code, of names and contents of the files, 64 hexadecimal digits.

    Args:
        covered: files and folders below the root; of folders all Python files, templates and
            styles count. Empty: every program and every package but the tests.
        root: the checkout.

    Raises:
        FileNotFoundError: a file or folder is not there.
    """
    places = [root / name for name in covered] or [
        *root.glob("*.py"),
        *(file.parent for file in root.glob("*/__init__.py") if file.parent.name != "tests"),
    ]
    files = [place for place in places if not place.is_dir()]
    files += [f for p in places if p.is_dir() for f in p.rglob("*") if f.suffix in SUFFIXES]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
