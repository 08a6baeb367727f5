"""`ringside check`."""

from typing import Any

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.compare.available_arms import asked_of
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.text import plural
from ringside_core.workloads.registry import fit_number, script_words


@with_flags(spec=spec_flags(several_arms=True))
def command(*, spec: RunSpec) -> None:
    """Say what will be done with a program (data, model, certificate); two batches are tried."""
    console = Console(soft_wrap=True, highlight=False)
    with console.status("loading the program…"):
        found = asked_of("ringside.verify.preview", spec.to_json(), spec.keras)
    if "refused" in found:
        raise RefusalError(found["refused"])
    for line in _lines(spec, found):
        console.print(line, markup=False)
    if found["obstacles"]:
        raise typer.Exit(1)


def _lines(spec: RunSpec, found: dict[str, Any]) -> list[str]:
    """What is printed."""
    model = found["model"]
    short = f", the last one on {found['short']} examples" if found["short"] else ""
    validation = found["validation"]
    lines = [
        *_which_fit(spec),
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


def _which_fit(spec: RunSpec) -> list[str]:
    """What of a script with several fits is looked at."""
    if not script_words(spec.workload):
        return []
    number = fit_number(spec.workload_options)
    return [f"fit: number {number} of the script; -w fit={number + 1} is for the next one, if any"]


def _of_certificate(found: dict[str, Any]) -> list[str]:
    """Which certificate it can get."""
    if found["obstacles"]:
        return [f"no certificate: {obstacle}" for obstacle in found["obstacles"]]
    alike: dict[tuple[str, str], list[str]] = {}
    for one in found["by_design"]:
        alike.setdefault((one["differs"], one["treated"]), []).append(one["layer"])
    differs = [
        f"by design: {_like(layers)}: {what}; {treated}"
        for (what, treated), layers in alike.items()
    ]
    narrow = found["not_in_float64"]
    return [
        *differs,
        *([f"certified in float32 only: {narrow}"] if narrow else []),
        "certificate: exact under synchronous backends, statistical under several asynchronous "
        "workers",
        "Next: ringside verify, with the same arguments.",
    ]


def _like(layers: list[str]) -> str:
    """The first one, and how many there are beside it."""
    others = len(layers) - 1
    return f"{layers[0]}, like {plural(others, 'other')}" if others else layers[0]
