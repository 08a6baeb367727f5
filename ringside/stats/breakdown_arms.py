"""Which arms run for the breakdown of others: each leaves something out."""

from collections.abc import Mapping, Sequence
from typing import Literal

from ringside_core.specs import CEILING, REFERENCE, Arm, Settings, Shared, backend_options
from ringside_core.specs.run_spec import Ablation

Role = Literal[
    "arm", "no_reduction", "no_input", "alone", "unused", "serial", "serial_no_input", "independent"
]
Work = tuple[str, str, str, int, int, str]


def breakdown_arms(arms: Sequence[Arm], shared: Shared) -> tuple[Arm, ...]:
    """The breakdown arms of every arm of the largest size and of the serial one, each once.

    And the ceiling of every size.
    """
    most = max(arm.replicas for arm in arms)
    found: dict[str, Arm] = {}
    for arm in arms:
        if arm.replicas == most or arm.backend == REFERENCE:
            needed = breakdown_arms_of(arm, shared)
        else:
            needed = (_independent(arm),) if arm.replicas > 1 else ()
        for one in needed:
            found.setdefault(one.label, one)
    return tuple(found.values())


def breakdown_arms_of(arm: Arm, shared: Shared) -> tuple[Arm, ...]:
    """The arms that `breakdown_of` needs beside `arm` and the serial reference.

    An arm that several others need has the same label for each of them. A twin and a breakdown arm
    need none themselves. An arm with a slow worker has no breakdown: one replica is never slowed.

    Args:
        arm: whose time is broken down.
        shared: what all arms share.
    """
    if arm.twin_of or arm.for_breakdown or arm.settings.slow_worker or shared.slow_worker:
        return ()
    batch, alone = (shared.global_batch_at(size) for size in (arm.replicas, 1))
    reference = _one_replica(_bare(REFERENCE, Settings()), alone)
    there = {work_of(arm, batch), work_of(reference, alone)}
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
    serial = _bare(REFERENCE, arm.settings)
    roles: dict[Role, Arm] = {}
    if several and arm.capabilities.synchronous:
        roles["no_reduction"] = _without(arm, "no_reduction", "without reduction")
    if several:
        roles["independent"] = _independent(arm)
    roles["no_input"] = (
        _without(arm, "no_input", "without input")
        if several
        else _one_replica(arm, part, "no_input")
    )
    if arm.capabilities.family != "none":
        roles["alone"] = _one_replica(arm, part)
        roles["unused"] = _one_replica(arm, part, "unused")
        roles["serial"] = _one_replica(serial, part)
    roles["serial_no_input"] = _one_replica(serial, part, "no_input")
    return roles


def work_of(arm: Arm, batch: int) -> Work:
    """What the runs of an arm do; the label of the arm does not matter."""
    options, settings = arm.options.model_dump_json(), arm.settings.model_dump_json()
    return arm.backend, options, settings, arm.replicas, batch, arm.ablation


def _without(arm: Arm, ablation: Ablation, words: str) -> Arm:
    label = f"{arm.label} {words}"
    return arm.replace(label=label, group=label, ablation=ablation, tuned_from="")


def _one_replica(of: Arm, batch: int, ablation: Ablation = "none") -> Arm:
    unused = " unused" if ablation == "unused" else ""
    without = " without input" if ablation == "no_input" else ""
    label = f"{of.group} ×1{unused} at batch {batch}{without}"
    one = of.replace(label=label, group=label, replicas=1, tuned_from="")
    return one.replace(ablation=ablation, global_batch=batch)


def _bare(backend: str, settings: Settings, replicas: int = 1) -> Arm:
    """An arm of a backend without options."""
    own = settings.model_dump(exclude_none=True)
    typed = [backend, *(f"{name}={str(value).lower()}" for name, value in own.items())]
    return Arm(
        label=f"{':'.join(typed)} ×{replicas}",
        group=":".join(typed),
        backend=backend,
        options=backend_options(backend, {}),
        replicas=replicas,
        settings=settings,
    )


def _independent(arm: Arm) -> Arm:
    """As many replicas as the arm has, with its settings, each with a model of its own."""
    bare = _bare(CEILING, arm.settings, arm.replicas)
    return bare.replace(group=bare.label, ablation="no_reduction")
