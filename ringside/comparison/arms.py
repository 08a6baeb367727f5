"""The arms that a person asks for."""

import math
from collections.abc import Iterable, Mapping

from ringside_core.readings.cgroups import cpu_quota
from ringside_core.readings.cores import whole_cores
from ringside_core.specs import (
    BACKENDS,
    REFERENCE,
    THIS_MACHINE,
    Arm,
    Placement,
    RefusalError,
    Settings,
    Shared,
    backend_options,
    backend_row,
    parse_option,
)
from ringside_core.specs.knob import KnobValue
from ringside_core.text import is_whole_number, plural


def default_backends(*, on_hosts: bool = False) -> str:
    """What a person who names no backends means, as `parse_arms` reads it.

    Args:
        on_hosts: only backends that can use several hosts, and the reference.
    """
    return ",".join(
        ":".join(filter(None, (row.name, options)))
        for row in BACKENDS.values()
        if not on_hosts or row.name == REFERENCE or row.capabilities.process_model != "single"
        for options in row.default_arms
    )


def of_default_comparison(arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """The arms that answer which family is faster; the others are compared when named.

    Serial, and at the largest size each way to combine gradients.
    """
    by_default = [arm for arm in arms if backend_row(arm.backend).compared_by_default]
    return tuple(arm for arm in by_default if arm.backend == REFERENCE or arm.replicas > 1)


def parse_arms(backends: str, replicas: str) -> tuple[Arm, ...]:
    """Every backend at every number of replicas; the serial reference is always among them.

    Args:
        backends: names separated by commas, each with options and settings after colons, such as
            `mirrored,horovod:controller=mpi:steps_per_execution=10`.
        replicas: numbers separated by commas.

    Raises:
        RefusalError: an unknown backend, option or setting, or a bad number.
    """
    sizes = _sizes(replicas)
    arms: list[Arm] = []
    named = [text.strip() for text in backends.split(",") if text.strip()]
    if not named:
        raise RefusalError("--backends must name at least one.", received=repr(backends))
    if REFERENCE not in named:
        named.insert(0, REFERENCE)
    for text in named:
        backend, *pairs = text.split(":")
        plain = Arm(
            label=text,
            group=text,
            backend=backend,
            options=backend_options(backend, {}),
            replicas=1,
        )
        arm = _with_typed(plain, _values(text, pairs))
        for size in (1,) if arm.capabilities.always_one_replica else sizes:
            arms.append(arm.replace(label=f"{text} ×{size}", replicas=size))
    return tuple(arms)


def _values(text: str, pairs: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in map(parse_option, pairs):
        if name in values:
            raise RefusalError(
                "An arm may name each option or setting once.",
                received=f"{name}={values[name]} and {name}={value} in {text!r}",
            )
        values[name] = value
    return values


def _with_typed(arm: Arm, values: dict[str, str]) -> Arm:
    """The arm with options of its backend and settings, as typed."""
    options, settings = type(arm.options).model_fields, Settings.model_fields
    for name in values:
        if name not in options and name not in settings:
            raise RefusalError(
                f"{arm.backend} has no option and an arm no setting of that name.",
                received=repr(name),
                advice=f"Options of {arm.backend}: {', '.join(options) or 'none'}. "
                f"Settings of any arm: {', '.join(settings)}.",
            )
    try:
        return with_changes(arm, values)
    except RefusalError as error:  # it names the noun, but the person typed an arm
        rule = error.rule
        for noun in (arm.options, arm.settings):
            rule = rule.removeprefix(f"{type(noun).__name__}: ")
        raise RefusalError(
            f"{arm.group}: {rule}", received=error.received, advice=error.advice
        ) from None


def with_changes(arm: Arm, changes: Mapping[str, KnobValue]) -> Arm:
    """The arm with some of its options and settings changed; its label stays."""
    known = type(arm.options).model_fields
    options = {name: value for name, value in changes.items() if name in known}
    settings = {name: value for name, value in changes.items() if name not in known}
    return arm.replace(
        options=backend_options(arm.backend, {**dict(arm.options), **options}),
        settings=arm.settings.replace(**settings),
    )


def refuse_same_runs(
    shared: Shared, arms: Iterable[Arm], placement: Placement = THIS_MACHINE
) -> None:
    """Refuse arms that differ in name at most: a setting of one equals what all others have."""
    labels: dict[str, str] = {}
    for arm in arms:
        made = shared.spec_of(arm, placement)
        when = "each_step" if made.merges_each_step else "each_epoch"
        spec = made.replace(metrics=when).content_hash
        if spec in labels:
            raise RefusalError(
                "Two arms must not be the same run.",
                received=f"{labels[spec]} and {arm.label}",
                advice="Leave out one of them.",
            )
        labels[spec] = arm.label


def cores_here(arms: Iterable[Arm]) -> int:
    """Cores of this machine for each replica, so that the largest arm has all of them.

    An arm with one replica gets the cores of one replica, not the whole machine. Otherwise scaling
    would compare one process on all cores with several processes on the same cores. Threads of one
    core count once, and a container has no more cores than its quota.
    """
    whole = min(whole_cores(), cpu_quota() or math.inf)
    return max(1, int(whole) // max(arm.replicas for arm in arms))


def too_few_cores(arms: Iterable[Arm], each: int) -> str:
    """Why the largest arm does not have its own cores on this machine; empty: it has."""
    replicas, cores, quota = max(arm.replicas for arm in arms), whole_cores(), cpu_quota()
    wanted = replicas * each
    reasons = []
    if wanted > cores:
        asked = f" × {each}" if each > 1 else ""
        reasons.append(f"{plural(replicas, 'replica')}{asked} on {plural(cores, 'core')}")
    if quota is not None and quota < min(wanted, cores):
        reasons.append(
            f"this container may use {quota:g} processors at once, and {wanted} are needed"
        )
    return "; ".join(reasons)


def _sizes(replicas: str) -> tuple[int, ...]:
    texts = [text.strip() for text in replicas.split(",") if text.strip()]
    if not texts or not all(is_whole_number(text) and int(text) > 0 for text in texts):
        raise RefusalError(
            "--replicas must be whole numbers of at least 1.",
            received=repr(replicas),
            advice="Example: --replicas 1,2",
        )
    return tuple(sorted({int(text) for text in texts}))


def largest(arms: Iterable[Arm]) -> list[Arm]:
    """The largest arm of every group, in the order of the groups."""
    found: dict[str, Arm] = {}
    for arm in arms:
        if arm.group not in found or arm.replicas > found[arm.group].replicas:
            found[arm.group] = arm
    return list(found.values())


def twin(arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
    """The reference once more, in the final: how far the two differ is the noise floor.

    The reference alone needs none. It is one process, so it costs least.
    """
    serial = next((arm for arm in arms if arm.backend == REFERENCE), None)
    if serial is None or len(arms) < 2:
        return ()
    label, group = f"{serial.label} again", f"{serial.group} again"
    return (serial.replace(label=label, group=group, twin_of=serial.label),)
