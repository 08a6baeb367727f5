"""`ringside check`."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.certificates.certify import certify
from ringside.certificates.subject import Subject
from ringside.certificates.trial_request import FEWEST_UPDATES
from ringside.comparison.choose import choose_arms
from ringside_core.specs import Certificate, RunSpec, Shared
from ringside_core.text import plural
from ringside_core.workloads.registry import fit_asked, fit_number, script_words


@with_flags(spec=spec_flags(several_arms=True))
def command(*, spec: RunSpec) -> None:
    """Say what will be done with a program (data, model, certificate); few batches are tried.

    Example: ringside check my_script.py
    """
    console = Console(soft_wrap=True, highlight=False)
    lines, certified = _checked(console, spec)
    for line in lines:
        console.print(line, markup=False)
    if not certified:
        raise typer.Exit(1)


def _checked(console: Console, spec: RunSpec) -> tuple[list[str], bool]:
    """What is printed of a program, and whether its trial was passed."""
    chosen = choose_arms(Shared.from_run(spec), "mirrored", "2")  # and the serial one
    (arm,) = (each for each in chosen.arms if each.replicas == 2)
    with console.status("running the program up to its fit…"):
        asked = fit_asked(spec.workload, spec.workload_options, spec.data_dir)
    with (
        console.status("plain Keras and mirrored ×2 train a few batches…"),
        TemporaryDirectory(prefix="ringside-check-") as folder,
    ):
        (found,) = certify(
            [Subject(arm, chosen.spec_of(arm))],
            folder=Path(folder),
            steps=FEWEST_UPDATES,
            quickly=True,
        )
    number = fit_number(spec.workload, spec.workload_options)
    return [*_asked_lines(spec, number, asked), *_trial_lines(found)], found.passed


def _asked_lines(spec: RunSpec, number: int, asked: Mapping[str, Any]) -> list[str]:
    updates = plural(asked["updates"], "update") if asked["updates"] else "updates"
    lines = [
        f"training: {plural(spec.epochs, 'epoch')} of {updates} on {spec.global_batch} rows; "
        f"{', '.join(asked['optimizers'])}",
        f"model: {asked['model']}, {asked['parameters']:,} parameters",
    ]
    if script_words(spec.workload):
        said = f"fit: number {number} of the script; -w fit={number + 1} is for the next, if any"
        lines.insert(0, said)
    if asked["callbacks"]:
        said = ", ".join(asked["callbacks"])
        lines.append(f"callbacks: {said}; certificates go without")
    return lines


def _trial_lines(found: Certificate) -> list[str]:
    if not found.passed:
        return [f"no certificate: {found.reason}"]
    return [
        f"trial: {plural(found.steps, 'update')} of mirrored ×2 were held against plain Keras",
        *(f"by design: {x.layer}: {x.differs}; {x.treated}" for x in found.by_design),
        *([f"certified in float32 only: {why}"] if (why := found.not_in_float64) else []),
        "Next: ringside verify, with the same arguments. It asks the same of every backend, and "
        "what follows a restart.",
    ]
