"""Which arms may be compared: those that are certified for what they ran."""

from collections.abc import Sequence

from ringside.stats.evidence import Answer, replicas_equal
from ringside_core.specs import (
    Certificate,
    Comparison,
    MachineFacts,
    RefusalError,
    Run,
)

NOT_VERIFIED = "it was not verified: run without --no-verify"
FOR_BREAKDOWN = "it is run for the breakdown and is not ranked"
HASH_DIGITS = 8  # as in the name of a run


def certificates_by_arm(comparison: Comparison) -> dict[str, Certificate]:
    """The certificates by the label of their arm.

    Raises:
        RefusalError: an arm has two, and nobody can say which holds.
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
    """Why a certificate says nothing about a run; empty: it does."""
    # Every round has a seed of its own; what is certified holds for each.
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
        if differs := _other_machine(certificate.machine, record.machine):
            return differs
        digests = {certificate.data_digest, record.data_digest}
        if "" not in digests and len(digests) > 1:  # a stream of unknown content has none
            return (
                f"it was verified with the data {certificate.data_digest[:HASH_DIGITS]}, "
                f"and trained on {record.data_digest[:HASH_DIGITS]}"
            )
    return ""


def _other_machine(verified: MachineFacts, ran: MachineFacts) -> str:
    """What decides the arithmetic and is not the same; empty: all is."""
    if verified.cpu_model != ran.cpu_model:
        return f"it was verified on {verified.cpu_model}, and ran on {ran.cpu_model}"
    names = sorted(
        name
        for name in {*verified.packages, *ran.packages}
        if verified.packages.get(name) != ran.packages.get(name)
    )
    if names:
        name = names[0]
        return (
            f"it was verified with {name} {verified.packages.get(name, 'absent')}, "
            f"and ran with {ran.packages.get(name, 'absent')}"
        )
    return ""
