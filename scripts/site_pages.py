"""Hooks of mkdocs.yml: pages that lie beside docs/, and links to source files as plain text."""

import json
import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
NOTEBOOK = ROOT / "examples" / "results.ipynb"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add README, CHANGELOG and the notebook."""
    for name, page in PAGES.items():
        content = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=with_links(content, name)))
    files.append(File.generated(config, "notebook.md", content=notebook_page(NOTEBOOK)))
    return files


def notebook_page(file: Path) -> str:
    """A notebook with its outputs, as Markdown: the richest form of each that a page can hold."""
    parts = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                parts.append(f"![figure](data:image/png;base64,{data['image/png'].strip()})")
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).strip()}\n```")
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A page of docs/, with the links of `with_links`."""
    if page.file.src_uri in (*PAGES.values(), "notebook.md"):
        return markdown
    return with_links(markdown, f"docs/{page.file.src_uri}")


def with_links(text: str, name: str) -> str:
    """Links that lead to a page of the site; of a link to a source file only its words are left.

    Args:
        text: Markdown.
        name: of its file, from the root of the checkout.

    Example:
        >>> with_links("[a](../README.md#x), [b](../train.py)", "docs/own-model.md")
        '[a](index.md#x), b'
    """
    here = PurePosixPath(name).parent

    def changed(match: re.Match[str]) -> str:
        image, words, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        within = posixpath.normpath(here / path)
        within = f"docs/{PAGES[within]}" if within in PAGES else within
        if not within.startswith("docs/") or (ROOT / within).is_dir():
            return words
        up = "../" * (len(here.parts) - 1 if here.parts[:1] == ("docs",) else 0)
        return f"{image}[{words}]({up}{within.removeprefix('docs/')}{hash_}{anchor})"

    return LINK.sub(changed, text)
