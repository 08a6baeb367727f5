"""What can be compared: runs must be alike, and an arm needs a certificate for what it ran.

Runs that are not alike are refused. An arm without a valid certificate stays in the report, and is
not ranked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ringside.stats.evidence import Answer, replicas_equal
from ringside_core.specs import (
    Arm,
    Certificate,
    Comparison,
    MachineFacts,
    RefusalError,
    Run,
)
from ringside_core.specs.noun import differences

NOT_VERIFIED = "it was not verified: run without --no-verify"
FOR_BREAKDOWN = "it is run for the breakdown and is not ranked"
HASH_DIGITS = 8  # as in the name of a run
DIGITS = 12  # of a digest, in a refusal
# Seeds differ by round, threads by process; where a run's files go is no matter.
MAY_DIFFER: dict[str, Any] = {
    "seed": True,
    "save": True,
    "topology": True,
    "resources": {"intra_op_threads", "inter_op_threads"},
}


# Runs that are alike


def arms_by_label(comparison: Comparison) -> dict[str, Arm]:
    """The arms by their labels, once each run is known to belong to its arm.

    `Comparison` already checks that labels are unique and each arm runs at most once per round.

    Raises:
        RefusalError: a run did not do what its arm says.
    """
    arms = {arm.label: arm for arm in comparison.arms}
    for run in comparison.runs:
        _check_own(run, arms[run.arm])
    return arms


def check_alike(comparison: Comparison, arms: Mapping[str, Arm]) -> None:
    """Refuse runs that cannot be compared; the message has both values.

    Raises:
        RefusalError: runs differ in what all must share, ran on different machines, or trained
            different models.
    """
    runs = comparison.runs
    for run in runs:
        specs = (run.spec, comparison.spec_of(arms[run.arm], run.round))
        ran, due = (spec.model_dump(mode="json", exclude=MAY_DIFFER) for spec in specs)
        for name, value, expected in differences(ran, due):
            raise RefusalError(
                f"All runs that are compared must have the same {name}.",
                received=f"{value} in {_place(run)}, and {expected} is its arm's",
            )
    for number in {run.round for run in runs}:  # another round may have another seed
        _check_same("seed", [(run, run.spec.seed) for run in runs if run.round == number])
    _check_machines(runs)
    _check_machine(comparison)
    _check_models(comparison, arms)


def _place(run: Run) -> str:
    return f"run {run.arm!r} of round {run.round + 1}"


def _check_own(run: Run, arm: Arm) -> None:
    told = (arm.backend, arm.replicas)
    ran = (run.spec.backend, run.spec.topology.num_replicas)
    if told != ran:
        raise RefusalError(
            "A run must have the backend and the number of replicas of its arm.",
            received=f"{_place(run)}: {ran[0]} ×{ran[1]}, and the arm is {told[0]} ×{told[1]}",
        )


def _check_same(name: str, values: Sequence[tuple[Run, object]]) -> None:
    for run, value in values:
        first, expected = values[0]
        if value != expected:
            raise RefusalError(
                f"All runs that are compared must have the same {name}.",
                received=f"{value} in {_place(run)}, {expected} in {_place(first)}",
            )


def _check_models(comparison: Comparison, arms: Mapping[str, Arm]) -> None:
    """Runs of one round start with the same weights; gradients have one size in all rounds.

    A certificate says nothing about a model that was changed after it. Left out are records without
    these facts (of servers, of older versions), and arms that are proved to train otherwise: they
    are not ranked, and the other arms must not suffer from them.
    """
    runs = [
        run
        for run in comparison.runs
        if run.outcome.completed and not _proved_unlike(arms[run.arm], comparison)
    ]
    for number in sorted({run.round for run in runs}):
        _check_one_model(
            "initial_digest",
            [
                (run, record.task, record.initial_digest[:DIGITS])
                for run in runs
                for record in run.records
                if run.round == number and record.initial_digest
            ],
        )
    _check_one_model(
        "gradient_bytes",
        [
            (run, record.task, record.gradient_bytes)
            for run in runs
            for record in run.records
            if record.gradient_bytes is not None
        ],
    )


def _proved_unlike(arm: Arm, comparison: Comparison) -> bool:
    """Whether a certificate says that the arm trains otherwise, or an arm that it breaks down."""
    unlike = [one.arm for one in comparison.certificates if not one.passed]
    if arm.for_breakdown:
        return arm.backend in {one.backend for one in unlike}
    return bool({arm.label, arm.twin_of} & {one.label for one in unlike})


def _check_one_model(name: str, told: Sequence[tuple[Run, str, object]]) -> None:
    for run, task, value in told:
        first, first_task, expected = told[0]
        if value != expected:
            raise RefusalError(
                "The model must not change while rounds are made.",
                received=f"{name} {value} in {_place(run)} ({task}), "
                f"{expected} in {_place(first)} ({first_task})",
                advice="Start a new comparison.",
            )


def _check_machines(runs: Sequence[Run]) -> None:
    """Each host has one processor and one software; smaller runs use hosts of the largest run."""
    facts: dict[str, tuple[Run, MachineFacts]] = {}
    for run in runs:
        for record in run.records:
            first, expected = facts.setdefault(record.machine.host, (run, record.machine))
            if difference := _difference(expected, record.machine):
                what, before, now = difference
                same = f"version of {what}" if what else "processor"
                raise RefusalError(
                    f"All runs that are compared must have run with the same {same}.",
                    received=f"{now} in {_place(run)}, {before} in {_place(first)}",
                )
    hosts = [(run, {record.machine.host for record in run.records}) for run in runs]
    largest, all_hosts = max(hosts, key=lambda one: len(one[1]), default=(None, set()))
    for run, own in hosts:
        if largest and not own <= all_hosts:
            raise RefusalError(
                "All runs that are compared must have run on the same machines.",
                received=f"{', '.join(sorted(own))} in {_place(run)}, "
                f"{', '.join(sorted(all_hosts))} in {_place(largest)}",
            )


def _check_machine(comparison: Comparison) -> None:
    """The runs were on the machine that the report describes.

    Of several hosts, one is that machine. Packages of the processes are compared elsewhere.
    """
    machine = comparison.machine
    expected = (machine.host, machine.cpu_model)
    for run in comparison.runs:
        found = sorted({(record.machine.host, record.machine.cpu_model) for record in run.records})
        if run.outcome.completed and expected not in found:
            raise RefusalError(
                "Every run must have run on the machine of its comparison.",
                received=f"{', '.join(': '.join(one) for one in found)} in {_place(run)}, "
                f"and the comparison is of {': '.join(expected)}",
            )


def _difference(first: MachineFacts, second: MachineFacts) -> tuple[str, str, str] | None:
    """The package that differs, with both versions; an empty name: the processors differ."""
    if first.cpu_model != second.cpu_model:
        return "", first.cpu_model, second.cpu_model
    for name in sorted({*first.packages, *second.packages}):
        before, now = (one.packages.get(name, "absent") for one in (first, second))
        if before != now:
            return name, before, now
    return None


# Arms that may be ranked


def certificates_by_arm(comparison: Comparison) -> dict[str, Certificate]:
    """The certificates by the label of their arm.

    Raises:
        RefusalError: an arm has two, so nobody knows which one is valid.
    """
    found = {one.arm.label: one for one in comparison.certificates}
    if len(found) != len(comparison.certificates):
        raise RefusalError(
            "Each arm of a comparison may have one certificate.",
            received=", ".join(one.arm.label for one in comparison.certificates),
        )
    return found


def why_not_comparable(
    certificate: Certificate | None, runs: Sequence[Run], each_example_once: Answer
) -> str:
    """Why an arm must not be ranked, in one sentence; empty: it may be.

    Args:
        certificate: of the arm.
        runs: of the arm, all of them.
        each_example_once: over its completed runs.
    """
    if certificate is None:
        return NOT_VERIFIED
    if not certificate.passed:
        return certificate.reason
    for run in runs:
        if why_not := _of_another_run(certificate, run):
            return why_not
    if each_example_once == "no":
        return "not every example was fed exactly once in every epoch"
    completed = [run for run in runs if run.outcome.completed]
    if completed and each_example_once == "unknown":
        return "nobody kept count of which examples were fed"
    if any(replicas_equal(run) == "no" for run in completed):
        return "the replicas end with different weights"
    return ""


def _of_another_run(certificate: Certificate, run: Run) -> str:
    """Why a certificate is not about this run; empty: it is."""
    # Every round has its own seed; the certificate is valid for all of them.
    of_that_seed = run.spec.replace(seed=certificate.spec.seed)
    expected, ran = certificate.spec_hash, of_that_seed.content_hash
    if expected != ran:
        return (
            f"its certificate is of the run {expected[:HASH_DIGITS]}, "
            f"and it ran {ran[:HASH_DIGITS]} in round {run.round + 1}"
        )
    hosts = {record.machine.host for record in run.records}
    if hosts and certificate.machine.host not in hosts:
        ran_on = ", ".join(sorted(hosts))
        return f"it was verified on {certificate.machine.host}, and ran on {ran_on}"
    for record in run.records:
        if difference := _difference(certificate.machine, record.machine):
            what, verified, now = difference
            if what:
                return f"it was verified with {what} {verified}, and ran with {now}"
            return f"it was verified on {verified}, and ran on {now}"
        digests = {certificate.data_digest, record.data_digest}
        if "" not in digests and len(digests) > 1:  # a stream of unknown content has none
            return (
                f"it was verified with the data {certificate.data_digest[:HASH_DIGITS]}, "
                f"and trained on {record.data_digest[:HASH_DIGITS]}"
            )
    return ""
