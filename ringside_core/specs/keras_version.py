"""Which Keras a process runs: legacy Keras (2) or Keras 3, by what a user's file imports.

A process has one of them: TensorFlow reads TF_USE_LEGACY_KERAS when it is imported. No TensorFlow
here.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from ringside_core.specs.errors import RefusalError

# A command line says it as text.
KerasVersion = Annotated[Literal[2, 3], BeforeValidator(lambda v: int(v) if v in ("2", "3") else v)]
SWITCH = "TF_USE_LEGACY_KERAS"
_PACKAGES: dict[str, KerasVersion] = {"tf_keras": 2, "keras": 3}


def use_version(version: KerasVersion) -> None:
    """Let this process run a Keras; before TensorFlow is imported.

    Raises:
        ImportError: it was imported, with the other one.
    """
    if "tensorflow" in sys.modules and chosen_version(imported=True) != version:
        raise ImportError(f"TensorFlow was imported with another Keras than {version}.")
    os.environ.update(environment_of(version))


def environment_of(version: KerasVersion) -> dict[str, str]:
    """The variables by which a process gets a Keras."""
    return {SWITCH: "1" if version == 2 else "0"}


def chosen_version(*, imported: bool) -> KerasVersion:
    """The Keras of this process; legacy Keras if none was chosen.

    Args:
        imported: whether TensorFlow was imported already.

    Raises:
        ImportError: it was, and took Keras 3 because none was chosen.
    """
    chosen = os.environ.get(SWITCH)
    if imported and chosen is None:
        raise ImportError(
            "TensorFlow was imported before Ringside. Write `import ringside` above "
            f"`import tensorflow`, or set {SWITCH}=1 (legacy Keras) or 0 (Keras 3)."
        )
    return 3 if chosen in ("0", "false", "False") else 2


def version_of(file: Path) -> KerasVersion:
    """The Keras that a Python file asks for.

    `import keras` asks for Keras 3, `import tf_keras` for legacy Keras; so do modules that lie in
    the same folder and are imported. `tf.keras` takes either; alone it means legacy Keras.

    Raises:
        RefusalError: both are asked for.
    """
    asked: dict[KerasVersion, str] = {}
    for module, place in _imports(file.resolve(), set()):
        if version := _PACKAGES.get(module):
            asked.setdefault(version, f"{module} in {place}")
    if len(asked) > 1:
        raise RefusalError(
            "A program has one Keras: 3 (`import keras`) or legacy Keras (`import tf_keras`).",
            received=" and ".join(asked[version] for version in sorted(asked)),
            advice="Import one of them.",
        )
    return next(iter(asked), 2)


def use_version_of_main() -> None:
    """Let this process run Keras 3 if its program asks for it; one that asks for both ends."""
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    try:
        if file.endswith(".py") and version_of(Path(file)) == 3:
            use_version(3)
    except RefusalError as error:
        print(f"{Path(file).name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _imports(file: Path, seen: set[Path]) -> Iterator[tuple[str, str]]:
    """(top-level module, file and line) of each import, also of modules beside the file."""
    if file in seen:
        return
    seen.add(file)
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # Python says so when it runs the file
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            yield top, f"{file.name}, line {node.lineno}"
            for beside in (file.parent / f"{top}.py", file.parent / top / "__init__.py"):
                if beside.is_file():
                    yield from _imports(beside, seen)
