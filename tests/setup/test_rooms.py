"""What import-linter cannot say about the roofs and their rooms."""

import ast
import configparser
from pathlib import Path
from typing import Any

import grimp
import pytest

from ringside.certificates import store as verify_store
from ringside.collectives import store as collectives_store
from ringside.report import source as report_source
from ringside_core.code_version import code_version

ROOT = Path(__file__).resolve().parents[2]

# Everything else imports TensorFlow, in part or in whole.
WITH_TENSORFLOW = {
    "backends",
    "trainers",
    "ringside.collectives",
    "ringside.probe",
    "ringside.script",
    "ringside.certificates",
    "ringside_core.keras",
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


def imports_of(program: Path) -> set[str]:
    """Names of the modules that a program imports."""
    found = set()
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_train_stands_beside_the_command_line_not_above_it() -> None:
    """Of the experiment it knows what scripts call and the request to verify, no more."""
    found = {name for name in imports_of(ROOT / "train.py") if name.partition(".")[0] == "ringside"}

    verifies = {"trial", "trial_request"}
    assert found == {"ringside.script", *(f"ringside.certificates.{name}" for name in verifies)}


@pytest.mark.parametrize("store", [verify_store, collectives_store, report_source])
def test_code_versions_cover_what_the_covered_code_imports(store: Any) -> None:
    """A certificate, a measurement or a page never outlives a change of code behind it."""
    graph = grimp.build_graph(*roofs(), exclude_type_checking_imports=True, cache_dir=None)
    rooms = tuple(name.removesuffix(".py").replace("/", ".") for name in store.COVERED)

    def is_covered(module: str) -> bool:
        return f"{module}.".startswith(tuple(f"{room}." for room in rooms))

    imported = {
        *(
            name
            for program in ROOT.glob("*.py")
            if is_covered(program.stem)
            for name in imports_of(program)
        ),
        *(
            name
            for module in graph.modules
            if is_covered(module)
            for name in graph.find_modules_directly_imported_by(module)
        ),
    }
    own = {name for name in imported if name.partition(".")[0] in roofs()}

    assert own
    assert sorted(name for name in own if not is_covered(name)) == []
    assert code_version(store.COVERED)  # every file and folder is there
