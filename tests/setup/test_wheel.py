"""The built wheel, installed outside the checkout, runs a comparison of a script."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """\
import numpy as np
import ringside
from tensorflow import keras

with ringside.scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
rows = np.random.default_rng(1).normal(size=(640, 4)).astype("float32")
ringside.fit(model, rows, rows.sum(1, keepdims=True), batch_size=32, epochs=2)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip wheel .` makes, of a clone: a build leaves files where it runs."""
    folder = tmp_path_factory.mktemp("wheel")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    build = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", *build, str(clone)], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.nightly
def test_its_types_and_templates_are_in_it(wheel: Path) -> None:
    """A type checker of a user reads them (PEP 561)."""
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {"ringside/py.typed", "ringside_core/py.typed", "trainers/py.typed"} <= names
    assert "ringside/report/templates/report.html.j2" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_script_is_compared_elsewhere(wheel: Path, tmp_path: Path) -> None:
    """With the packages of this environment, but not its Ringside."""
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    (own,) = env.glob("lib/python*/site-packages")
    # Of a folder that a .pth names, no further .pth is read: so not the one of the checkout.
    (own / "packages.pth").write_text(sysconfig.get_paths()["purelib"])
    install = ["pip", "install", "-q", "--no-deps", "--no-index", "--ignore-installed"]
    # Without --ignore-installed pip would remove the editable one of the checkout.
    subprocess.run([sys.executable, "-m", *install, "--prefix", str(env), str(wheel)], check=True)
    (tmp_path / "script.py").write_text(SCRIPT)
    flags = ["--backends", "mirrored", "--replicas", "2", "--launches", "0", "--name", "bout"]
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    done = subprocess.run(
        [env / "bin" / "python", "-m", "ringside.cli.main", "compare", "script.py", *flags],
        cwd=tmp_path,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "certified" in done.stdout
    assert (tmp_path / "runs" / "bout" / "report.html").is_file()
    assert str(ROOT) not in (tmp_path / "runs" / "bout" / "results.json").read_text()
