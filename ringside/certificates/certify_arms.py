"""Certify arms: progress, the files, and what is kept for later."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ringside.certificates import store
from ringside.certificates.certify import certify
from ringside.certificates.processes import HERE, Start
from ringside.certificates.subject import Subject
from ringside_core.specs import Certificate, write_whole
from ringside_core.text import file_name
from ringside_core.workloads.registry import certified_updates


def certify_arms(
    console: Console,
    subjects: Sequence[Subject],
    folder: Path,
    *,
    steps: int | None = None,
    reuse: bool = False,
    start: Start = HERE,
) -> tuple[Certificate, ...]:
    """Certify arms, a line for each; the certificates are written into the folder.

    Args:
        console: where the lines go.
        subjects: the arms.
        folder: of the command.
        steps: updates to compare; None: as many as the workload says.
        reuse: take certificates that earlier commands have kept, where nothing has changed since.
        start: where the processes are started, and by which launcher.
    """
    steps = steps or certified_updates(subjects[0].spec.workload)
    kept: dict[str, Certificate] = {}
    if reuse:
        found = {s.arm.label: _kept(s, steps, start) for s in subjects}
        kept = {label: old for label, (old, why) in found.items() if old and not why}
        for why in dict.fromkeys(why for _, why in found.values() if why):
            console.print(f"certified again: {why}", soft_wrap=True, highlight=False)
    with console.status("verifying…") as status:

        def started(label: str) -> None:
            status.update(f"verifying: {label}…")
            if not console.is_terminal:  # which shows no status
                console.print(f"verifying: {label}…", soft_wrap=True, highlight=False)

        def done(certificate: Certificate) -> None:
            # Reasons are said with all certificates.
            word = "[green]certified[/]" if certificate.passed else "[red]not certified[/]"
            console.print(f"{certificate.arm.label:<34} {word}", highlight=False)
            _write(certificate, folder)
            try:
                store.keep(certificate)
            except OSError as error:
                console.print(f"not kept for later commands: {error}", highlight=False)

        missing = [subject for subject in subjects if subject.arm.label not in kept]
        made = {
            certificate.arm.label: certificate
            for group in _same_training(missing)
            for certificate in certify(
                group,
                folder=_unused(folder),
                steps=steps,
                on_start=started,
                on_end=done,
                start=start,
            )
        }
    if kept:
        console.print(
            "certified by an earlier command, and unchanged since: "
            f"{len(kept)} of {len(subjects)} arms",
            highlight=False,
        )
    for subject in subjects:
        if old := kept.get(subject.arm.label):
            # By whatever label it was made, it is of this very run.
            made[subject.arm.label] = old.replace(arm=subject.arm)
            _write(made[subject.arm.label], folder)
    return tuple(made[subject.arm.label] for subject in subjects)


def _kept(subject: Subject, steps: int, start: Start) -> tuple[Certificate | None, str]:
    """The last certificate of this run, started in this way, and why it is stale; empty: not."""
    spec, placement, launcher = subject.spec, start.placement, start.launcher_of(subject.spec)
    old = store.newest(spec, steps=steps, placement=placement, launcher=launcher)
    return old, "" if old is None else store.stale(old, spec, placement)


def _same_training(subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Those with one global batch and one arithmetic share plain Keras' trainings."""
    groups: dict[object, list[Subject]] = {}
    for subject in subjects:
        key = (subject.spec.global_batch, subject.spec.arithmetic)
        groups.setdefault(key, []).append(subject)
    return list(groups.values())


def _unused(folder: Path) -> Path:
    """A folder for traces and logs that an earlier look, perhaps interrupted, has not filled."""
    names = itertools.chain(["verify"], (f"verify-{n}" for n in itertools.count(2)))
    return next(folder / name for name in names if not (folder / name).exists())


def _write(certificate: Certificate, folder: Path) -> None:
    path = folder / "certificates" / f"{file_name(certificate.arm.label)}.json"
    write_whole(path, certificate.to_json())
