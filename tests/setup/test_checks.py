"""The small checks of `make check` that are our own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("[there](page.md#a-heading)", None),
        ("[there](page.md#gone)", "guide.md:1: no such heading: page.md#gone"),
        ("[there](gone.md)", "guide.md:1: no such file: gone.md"),
        ("`[code](gone.md)`", None),
        ("`scripts/check_links.py:anchors`", None),
        ("`scripts/gone.py`", "guide.md:1: no such file: scripts/gone.py"),
        ("`elsewhere/gone.py`", None),
        ("[web](https://example.org/gone)", None),
    ],
)
def test_links_lead_somewhere(tmp_path: Path, link: str, complaint: str | None) -> None:
    """A missing page, heading or file is named with its line; the web is not checked."""
    (tmp_path / "scripts").mkdir()
    checker = tmp_path / "scripts" / "check_links.py"
    checker.write_text((ROOT / "scripts" / "check_links.py").read_text())
    (tmp_path / "page.md").write_text("# A heading\n")
    (tmp_path / "guide.md").write_text(f"{link}\n")

    done = subprocess.run([sys.executable, str(checker)], capture_output=True, text=True)

    assert done.stderr.strip() == (complaint or "")
    assert done.returncode == (1 if complaint else 0)


def test_comments_name_documents_that_are_there(tmp_path: Path) -> None:
    """A document that only its author has helps no reader."""
    checker = tmp_path / "check" / "check_links.py"
    checker.parent.mkdir()
    checker.write_text((ROOT / "scripts" / "check_links.py").read_text())
    (tmp_path / "README.md").write_text("# Read me\n")
    (tmp_path / "code.py").write_text("# See README.md.\n# See docs/" + "gone.md.\n")

    done = subprocess.run([sys.executable, str(checker)], capture_output=True, text=True)

    assert done.stderr.strip() == "code.py:2: no such document: docs/" + "gone.md"


def test_old_words_are_named(tmp_path: Path) -> None:
    """With file and line, also in a name or across two lines; not within another word."""
    checker = tmp_path / "scripts" / "check_words.py"
    checker.parent.mkdir()
    checker.write_text((ROOT / "scripts" / "check_words.py").read_text())
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    old, phrase = "an" + "ew", "in the\nplace " + "of"

    for words, code, complaint in (
        (f"{old}er", 0, ""),
        (f"As\nit is_{old}_made.", 1, f"{page.name}:2: {old}"),
        (f"It stands {phrase} it.", 1, "page.md:1: " + phrase.replace("\n", " ")),
    ):
        page.write_text(words)
        done = subprocess.run([sys.executable, str(checker)], capture_output=True, text=True)
        assert done.returncode == code
        assert complaint in done.stdout + done.stderr
