"""Which Keras a program asks for, by its imports."""

from pathlib import Path

import pytest

from ringside_core.specs import RefusalError
from ringside_core.specs.keras_version import SWITCH, chosen_version, version_of
from ringside_core.workloads.registry import keras_of


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("import keras\n", 3),
        ("from keras import layers\n", 3),
        ("import keras.layers as kl\n", 3),
        ("def model():\n    import keras\n", 3),
        ("import tensorflow as tf\nimport keras\n", 3),
        ("import tf_keras as keras\n", 2),
        ("import tensorflow as tf\nfrom tensorflow import keras\n", 2),
        ("from .keras import model\n", 2),
        ("import keras_cv\n", 2),
        ("", 2),
        ("this is no Python\n", 2),
    ],
)
def test_the_imports_decide(text: str, version: int, tmp_path: Path) -> None:
    """Wherever they stand; a file that is no Python is refused when it runs."""
    file = tmp_path / "program.py"
    file.write_text(text)

    assert version_of(file) == version
    assert keras_of(f"{file}:model") == version
    assert keras_of(f"{file} --rate 3") == version


def test_modules_beside_the_file_are_read_too(tmp_path: Path) -> None:
    """Also those that import each other."""
    (tmp_path / "program.py").write_text("import models\n")
    (tmp_path / "models.py").write_text("import program\nfrom parts.nets import net\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("import keras\n")

    assert version_of(tmp_path / "program.py") == 3


def test_both_are_refused_with_their_lines(tmp_path: Path) -> None:
    """One process has one Keras."""
    (tmp_path / "program.py").write_text("import tf_keras\nimport other\n")
    (tmp_path / "other.py").write_text("\nimport keras\n")

    with pytest.raises(RefusalError, match=r"tf_keras in program.py, line 1 and keras in other.py"):
        version_of(tmp_path / "program.py")


@pytest.mark.parametrize(("value", "version"), [("0", 3), ("1", 2), ("True", 2), (None, 2)])
def test_the_switch_of_tensorflow_decides_in_a_process(
    value: str | None, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unset: legacy Keras, unless TensorFlow has taken Keras 3 already."""
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)

    assert chosen_version(imported=False) == version
    if value is None:
        with pytest.raises(ImportError, match="above `import tensorflow`"):
            chosen_version(imported=True)
