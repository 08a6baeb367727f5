"""Each command of benchmarks/, as it is typed, with as little work as it can do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 280
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(LIMIT_S + 20)]


def ran(*words: str) -> str:
    """What a command prints; it ends with 0."""
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("words", "arms"),
    [
        ("tax.py --programs digits --backends serial", ["digits, serial ×1"]),
        ("tax.py --programs conv --backends mirrored,central_storage", ["conv, mirrored ×2"]),
        ("tax.py --programs digits --backends parameter_server", ["digits, parameter_server ×2"]),
        ("tax.py --programs digits --keras 3 --backends horovod", ["digits, horovod ×2"]),
        (
            "tax.py --programs mobilenet",
            ["mobilenet, horovod ×2", "mobilenet, multi_worker_mirrored ×2"],
        ),
        ("tax.py --programs TFRecord,generator", ["TFRecord, serial ×1", "generator, horovod ×2"]),
    ],
)
def test_ringside_against_a_script_by_hand(words: str, arms: list[str], tmp_path: Path) -> None:
    """Both sides run in turns and do the same; each arm has a ratio."""
    command, *flags = words.split()

    ran(f"benchmarks/{command}", "--smoke", "--output", str(tmp_path), *flags)

    (written,) = tmp_path.glob("*/*.json")
    found = json.loads(written.read_text())
    assert {arm for arm in arms if found["ratios"][arm]["value"] > 0} == set(arms)
    assert found["problems"] == []


def test_what_a_comparison_can_tell_apart(tmp_path: Path) -> None:
    """One screening: a planted slowdown has a ratio; an equal pair needs a final."""
    printed = ran("benchmarks/power.py", "--smoke", "--output", str(tmp_path))

    assert "one_device ×1 slowed down ÷ one_device ×1" in printed
    assert "one_device ×1 ÷ itself: no ratio" in printed
