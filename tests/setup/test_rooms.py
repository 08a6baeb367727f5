"""What import-linter cannot say about the roofs and their rooms."""

import ast
import configparser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Everything else imports TensorFlow, in part or in whole.
WITH_TENSORFLOW = {
    "backends",
    "trainers",
    "ringside.collectives",
    "ringside.verify",
    "ringside_core.keras",
    "ringside_core.optimizers",
    "ringside_core.workloads",
}
DIVIDED = ("ringside", "ringside_core")  # roofs whose rooms differ in this


def roofs() -> set[str]:
    """Top-level packages of the checkout that are installed."""
    return {init.parent.name for init in ROOT.glob("*/__init__.py")} - {"tests"}


def rooms(roof: str) -> set[str]:
    """Packages and modules of a roof."""
    inside = {
        *(init.parent.name for init in (ROOT / roof).glob("*/__init__.py")),
        *(file.stem for file in (ROOT / roof).glob("*.py") if file.stem != "__init__"),
    }
    return {f"{roof}.{name}" for name in inside}


def test_import_linter_knows_every_room() -> None:
    """A package that setup.cfg does not list would escape the contracts."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")

    def listed(section: str, option: str) -> set[str]:
        return set(config[section][option].split())

    everything = roofs().difference(DIVIDED).union(*map(rooms, DIVIDED))

    assert listed("importlinter", "root_packages") == roofs()
    assert listed("importlinter:contract:entry-point", "source_modules") == roofs()
    assert (
        listed("importlinter:contract:no-tensorflow", "source_modules")
        == everything - WITH_TENSORFLOW
    )
    assert listed("options.packages.find", "include") == {
        *roofs(),
        *(f"{roof}.*" for roof in roofs()),
    }


def test_train_stands_beside_the_command_line_not_above_it() -> None:
    """train.py runs on every node: it never imports the experiment."""
    imported = set()
    for node in ast.walk(ast.parse((ROOT / "train.py").read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])

    assert "ringside" not in imported
