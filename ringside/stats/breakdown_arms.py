"""The arms that run only for the breakdown of others (`ringside compare --why`)."""

from collections.abc import Mapping, Sequence
from typing import Literal

from ringside_core.specs import (
    REFERENCE,
    Arm,
    RunSpec,
    Settings,
    backend_options,
)
from ringside_core.specs.run_spec import Ablation

Role = Literal["arm", "no_reduction", "no_input", "alone", "unused", "serial", "serial_no_input"]
Work = tuple[str, str, str, int, int, str]


def breakdown_arms(
    arms: Sequence[Arm], base: RunSpec, scaling: Literal["strong", "weak"]
) -> tuple[Arm, ...]:
    """The breakdown arms of every arm of the largest size and of the serial one, each once."""
    most = max(arm.replicas for arm in arms)
    found: dict[str, Arm] = {}
    for arm in arms:
        if arm.replicas == most or arm.backend == REFERENCE:
            for one in breakdown_arms_of(arm, base, scaling=scaling):
                found.setdefault(one.label, one)
    return tuple(found.values())


def breakdown_arms_of(
    arm: Arm, base: RunSpec, *, scaling: Literal["strong", "weak"] = "strong"
) -> tuple[Arm, ...]:
    """The arms that `breakdown_of` needs beside `arm` and the serial reference.

    An arm that several others need has the same label for each of them. A twin and a breakdown arm
    need none themselves.

    Args:
        arm: whose time is broken down.
        base: what every arm trains.
        scaling: of the comparison; weak: the global batch of `base` is that of one replica.
    """
    if arm.twin_of or arm.for_breakdown:
        return ()
    batch = base.global_batch * (arm.replicas if scaling == "weak" else 1)
    reference = _one_replica(REFERENCE, Settings(), base.global_batch)
    there = {work_of(arm, batch), work_of(reference, base.global_batch)}
    needed = roles_of(arm, batch).values()
    return tuple(one for one in needed if work_of(one, one.global_batch or batch) not in there)


def roles_of(arm: Arm, batch: int) -> Mapping[Role, Arm]:
    """Every kind of run that the breakdown of an arm needs beside its own runs.

    Args:
        arm: whose time is broken down.
        batch: global batch of its runs.
    """
    part = batch // arm.replicas
    several = arm.replicas > 1
    roles: dict[Role, Arm] = {}
    if several and arm.capabilities.synchronous:
        roles["no_reduction"] = _without(arm, "no_reduction", "without reduction")
    roles["no_input"] = (
        _without(arm, "no_input", "without input")
        if several
        else _one_replica(arm, arm.settings, part, "no_input")
    )
    if arm.capabilities.family != "none":
        roles["alone"] = _one_replica(arm, arm.settings, part)
        roles["unused"] = _one_replica(arm, arm.settings, part, "unused")
        roles["serial"] = _one_replica(REFERENCE, arm.settings, part)
    roles["serial_no_input"] = _one_replica(REFERENCE, arm.settings, part, "no_input")
    return roles


def work_of(arm: Arm, batch: int) -> Work:
    """What the runs of an arm do; the label of the arm does not matter."""
    return (
        arm.backend,
        arm.options.model_dump_json(),
        arm.settings.model_dump_json(),
        arm.replicas,
        batch,
        arm.ablation,
    )


def _without(arm: Arm, ablation: Ablation, words: str) -> Arm:
    label = f"{arm.label} {words}"
    return arm.replace(label=label, group=label, ablation=ablation, tuned_from="")


def _one_replica(of: Arm | str, settings: Settings, batch: int, ablation: Ablation = "none") -> Arm:
    """One replica of an arm's backend, or of the serial one with the arm's settings."""
    if isinstance(of, Arm):
        group, backend, options = of.group, of.backend, of.options
    else:
        own = settings.model_dump(exclude_none=True)
        named = [f"{name}={str(value).lower()}" for name, value in own.items()]
        group, backend, options = ":".join([of, *named]), of, backend_options(of, {})
    words = {"none": "", "unused": " unused", "no_input": " without input"}
    label = f"{group} ×1{words['unused'] if ablation == 'unused' else ''} at batch {batch}"
    label += words["no_input"] if ablation == "no_input" else ""
    return Arm(
        label=label,
        group=label,
        backend=backend,
        options=options,
        replicas=1,
        settings=settings,
        ablation=ablation,
        global_batch=batch,
    )
