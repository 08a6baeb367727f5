"""`ringside check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.compare.available_arms import asked_of
from ringside.compare.choose import choose_arms
from ringside.verify.certify_script import certify_script
from ringside.verify.processes import HERE
from ringside.verify.subject import Subject
from ringside.verify.trial_request import FEWEST_UPDATES
from ringside_core.specs import Certificate, RefusalError, RunSpec, Shared
from ringside_core.text import plural
from ringside_core.workloads.registry import fit_number, fit_of_script, script_words


@with_flags(spec=spec_flags(several_arms=True))
def command(*, spec: RunSpec) -> None:
    """Say what will be done with a program (data, model, certificate); few batches are tried."""
    console = Console(soft_wrap=True, highlight=False)
    lines, certified = (_of_script if script_words(spec.workload) else _of_function)(console, spec)
    for line in lines:
        console.print(line, markup=False)
    if not certified:
        raise typer.Exit(1)


def _of_function(console: Console, spec: RunSpec) -> tuple[list[str], bool]:
    """What is printed of a workload, and whether it can be certified."""
    with console.status("loading the program…"):
        found = asked_of("ringside.verify.preview", spec.to_json(), spec.keras)
    if "refused" in found:
        raise RefusalError(found["refused"])
    return _lines(spec, found), not found["obstacles"]


def _of_script(console: Console, spec: RunSpec) -> tuple[list[str], bool]:
    """What is printed of a script, and whether its trial was passed."""
    chosen = choose_arms(Shared.from_run(spec), "mirrored", "2")  # and the serial one
    (arm,) = (one for one in chosen.arms if one.replicas == 2)
    with (
        console.status("plain Keras and mirrored ×2 train a few batches…"),
        TemporaryDirectory(prefix="ringside-check-") as folder,
    ):
        (found,) = certify_script(
            [Subject(arm, chosen.spec_of(arm))],
            folder=Path(folder),
            steps=FEWEST_UPDATES,
            on_start=lambda label: None,
            on_end=lambda certificate: None,
            start=HERE,
            quickly=True,
        )
    asked = fit_of_script(spec.workload, fit_number(spec.workload_options))
    return [*_asked_lines(spec, asked), *_trial_lines(found)], found.passed


def _asked_lines(spec: RunSpec, asked: Mapping[str, Any]) -> list[str]:
    """What a fit of a script asks for."""
    number = fit_number(spec.workload_options)
    updates = plural(asked["updates"], "update") if asked["updates"] else "updates"
    lines = [
        f"fit: number {number} of the script; -w fit={number + 1} is for the next one, if any",
        f"training: {plural(spec.epochs, 'epoch')} of {updates} on {spec.global_batch} rows; "
        f"{', '.join(asked['optimizers'])}",
        f"model: {asked['model']}, {asked['parameters']:,} parameters",
    ]
    if asked["callbacks"]:
        said = ", ".join(asked["callbacks"])
        lines.append(f"callbacks: {said}; certificates go without")
    return lines


def _trial_lines(found: Certificate) -> list[str]:
    """What a trial of mirrored ×2 has found."""
    if not found.passed:
        return [f"no certificate: {found.reason}"]
    return [
        f"trial: {plural(found.steps, 'update')} of mirrored ×2 were held against plain Keras",
        *_by_design([one.model_dump() for one in found.by_design]),
        *_narrow(found.not_in_float64),
        "Next: ringside verify, with the same arguments. It asks the same of every backend, and "
        "what follows a restart.",
    ]


def _lines(spec: RunSpec, found: dict[str, Any]) -> list[str]:
    """What is printed."""
    model = found["model"]
    short = f", the last one on {found['short']} examples" if found["short"] else ""
    validation = found["validation"]
    lines = [
        f"data: {plural(found['examples'], 'example')}"
        f"{', with weights' if found['weighted'] else ''}; "
        + (f"{validation:,} for validation" if validation else "none for validation"),
        *(f"data: {note}" for note in found["notes"]),
        f"training: {plural(spec.epochs, 'epoch')} of {plural(found['updates'], 'update')} on "
        f"{spec.global_batch} examples{short}; {', '.join(model['optimizers'])}",
        f"model: {model['kind']}, {model['parameters']:,} parameters, computes in "
        f"{model['bits']} bits",
    ]
    if model["own_steps"]:
        lines.append(
            f"model: true examples only reach its own {' and '.join(model['own_steps'])}"
            + (
                "; its gradients are combined where an optimizer applies them"
                if "train_step" in model["own_steps"]
                else ""
            )
        )
    if model["unused"]:
        lines.append(
            f"compile: {', '.join(model['unused'])} is not used; --steps-per-execution and "
            "--jit-compile are"
        )
    if model["callbacks"]:
        lines.append(
            f"callbacks: {', '.join(model['callbacks'])}; certificates and comparisons go without"
        )
    lines += [f"callbacks: {warning}" for warning in model["warnings"]]
    return [*lines, *_of_certificate(found)]


def _of_certificate(found: dict[str, Any]) -> list[str]:
    """Which certificate it can get."""
    if found["obstacles"]:
        return [f"no certificate: {obstacle}" for obstacle in found["obstacles"]]
    return [
        *_by_design(found["by_design"]),
        *_narrow(found["not_in_float64"]),
        "certificate: exact under synchronous backends, statistical under several asynchronous "
        "workers",
        "Next: ringside verify, with the same arguments.",
    ]


def _by_design(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in layers:
        groups.setdefault((one["differs"], one["treated"]), []).append(one["layer"])
    return [
        f"by design: {_like(layers)}: {what}; {treated}"
        for (what, treated), layers in groups.items()
    ]


def _narrow(not_in_float64: str) -> list[str]:
    return [f"certified in float32 only: {not_in_float64}"] if not_in_float64 else []


def _like(layers: list[str]) -> str:
    """The first one, and how many there are beside it."""
    others = len(layers) - 1
    return f"{layers[0]}, like {plural(others, 'other')}" if others else layers[0]
