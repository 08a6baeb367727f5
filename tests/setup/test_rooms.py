"""What import-linter cannot say about the rooms."""

import ast
import configparser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


WITHOUT_TENSORFLOW = {"specs", "measure", "launch", "lab", "compare", "report", "cli"}


def test_import_linter_knows_every_room() -> None:
    """A package that setup.cfg does not list would escape the contracts."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")

    def listed(section: str, option: str) -> set[str]:
        return set(config[section][option].split())

    rooms = {init.parent.name for init in ROOT.glob("*/__init__.py")} - {"tests"}

    assert listed("importlinter", "root_packages") == rooms
    assert listed("importlinter:contract:entry-point", "source_modules") == rooms
    assert (
        listed("importlinter:contract:no-tensorflow", "source_modules")
        == rooms & WITHOUT_TENSORFLOW
    )


def test_train_stands_beside_the_command_line_not_above_it() -> None:
    """train.py runs on every node: it never imports cli, compare or report."""
    train = ROOT / "train.py"
    if not train.exists():
        pytest.skip("train.py is not written yet")

    imported = set()
    for node in ast.walk(ast.parse(train.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])

    assert not imported & {"cli", "compare", "report"}
