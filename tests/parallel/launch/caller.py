"""A process of its own that executes a plan, so that a test can end it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from launch import Plan

ROOT = Path(__file__).resolve().parents[3]
CALLER = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from launch import Plan, execute
from launch.interrupts import Interrupts
plan = Plan.model_validate_json(pathlib.Path(sys.argv[1]).read_text())
with Interrupts(saves=True) as interrupts:
    execution = execute(
        plan, on_progress=lambda progress: print(progress, flush=True), interrupts=interrupts
    )
print(execution.outcome)
"""


def calling(plan: Plan, folder: Path, *inside: str, **how: Any) -> "subprocess.Popen[str]":
    """The command, started inside of another; what it prints is to be read."""
    command = [*inside, *caller_of(plan, folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how)


def caller_of(plan: Plan, folder: Path) -> list[str]:
    """The command; it prints each progress, and then the outcome."""
    file = folder / "plan.json"
    file.write_text(plan.model_dump_json())
    return [sys.executable, "-c", CALLER, str(file), str(ROOT)]
