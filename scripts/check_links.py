"""Fail if a page, or a comment, names a document, a file or a heading that is not in the checkout.

Checked are links in Markdown, paths in back-ticks there that begin with a folder of the checkout,
such as `launch/plan.py`, and documents that Python files name. Links to the web are not checked:
that would need the network.
"""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?<!`)`([\w.-]+/[\w./-]*)(?::\w+)?`(?!`)")
DOCUMENT = re.compile(r"(?<![\w/])(?:docs/[\w./-]+|[A-Z]+)\.md\b")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
SKIPPED = {".venv", ".git", "build", "node_modules", "runs"}


def anchors(page: str) -> set[str]:
    """What GitHub makes of a page's headings."""
    names: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 0
        while (unique := f"{name}-{number}" if number else name) in names:
            number += 1
        names.add(unique)
    return names


def blank(match: re.Match[str]) -> str:
    """Spaces of the same length, so that line numbers stay the same."""
    return re.sub(r"[^\n]", " ", match.group())


def broken_links(root: Path) -> list[str]:
    """One line for each link, or path in back-ticks, that leads nowhere."""
    broken = []
    for page in sorted(root.rglob("*.md")):
        if SKIPPED & set(page.relative_to(root).parts):
            continue
        prose = FENCE.sub(blank, page.read_text())
        for match in PATH.finditer(prose):
            top = match[1].split("/")[0]
            if top in SKIPPED or not (root / top).is_dir() or (root / match[1]).exists():
                continue
            where = f"{page.relative_to(root)}:{prose.count(chr(10), 0, match.start()) + 1}"
            broken.append(f"{where}: no such file: {match[1]}")
        text = CODE.sub(blank, page.read_text())
        for match in LINK.finditer(text):
            link = unquote(match[1] or match[2])
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (root / path[1:] if path.startswith("/") else page.parent / path).resolve()
            target = target if path else page
            where = f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
            if not target.exists():
                broken.append(f"{where}: no such file: {link}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                broken.append(f"{where}: no such heading: {link}")
    return broken


def unknown_documents(root: Path) -> list[str]:
    """One line for each document that a Python file names and that is not there."""
    return [
        f"{file.relative_to(root)}:{number}: no such document: {name}"
        for file in sorted(root.rglob("*.py"))
        if not SKIPPED & set(file.relative_to(root).parts)
        for number, line in enumerate(file.read_text().split("\n"), start=1)
        for name in DOCUMENT.findall(line)
        if not (root / name).exists()
    ]


if __name__ == "__main__":
    checkout = Path(__file__).resolve().parent.parent
    problems = broken_links(checkout) + unknown_documents(checkout)
    sys.exit("\n".join(problems) or None)
