"""What can be compared: runs of the same terms, of arms with a certificate for what they ran.

Runs of other terms are refused. An arm without a valid certificate stays in the report, and is
not ranked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ringside.stats.evidence import Answer, replicas_equal
from ringside_core.specs import Arm, Certificate, Comparison, MachineFacts, RefusalError, Run
from ringside_core.specs.noun import differences

NOT_VERIFIED = "it was not verified: run without --no-verify"
FOR_BREAKDOWN = "it is run for the breakdown and is not ranked"
HASH_DIGITS = 8  # as in the name of a run
DIGITS = 12  # of a digest, in a refusal
# Seeds differ by launch, threads by process; where a run's files go is no matter.
MAY_DIFFER: dict[str, Any] = {
    "seed": True,
    "save": True,
    "topology": True,
    "resources": {"intra_op_threads", "inter_op_threads"},
}
PROCESSOR = "processor"
SAME = "All runs that are compared must have the same {}."


# Terms that all runs share


def arms_by_label(comparison: Comparison) -> dict[str, Arm]:
    """The arms by their labels, once each run is known to belong to its arm.

    `Comparison` already checks that labels are unique and each arm runs at most once in a launch.

    Raises:
        RefusalError: a run did not do what its arm says.
    """
    arms = {arm.label: arm for arm in comparison.arms}
    for run in comparison.runs:
        arm = arms[run.arm]
        due, ran = (arm.backend, arm.replicas), (run.spec.backend, run.spec.topology.num_replicas)
        if due != ran:
            raise RefusalError(
                "A run must have the backend and the number of replicas of its arm.",
                received=f"{_place(run)}: {ran[0]} ×{ran[1]}, and the arm is {due[0]} ×{due[1]}",
            )
    return arms


def check_same_terms(comparison: Comparison, arms: Mapping[str, Arm]) -> None:
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
                SAME.format(name),
                received=f"{value} in {_place(run)}, and {expected} is its arm's",
            )
    for number in {run.round for run in runs}:  # another launch may have another seed
        seeds = [(_place(run), run.spec.seed) for run in runs if run.round == number]
        _check_same(SAME.format("seed"), seeds)
    _check_machines(comparison)
    _check_models([run for run in runs if not _proved_unlike(arms[run.arm], comparison)])


def _place(run: Run) -> str:
    return f"run {run.arm!r} of {run.stage}"


def _check_same(rule: str, values: Sequence[tuple[str, object]], what: str = "") -> None:
    """Refuse values of which one is another than the first; None: not known."""
    known = [(place, value) for place, value in values if value is not None]
    for place, value in known:
        first, expected = known[0]
        if value != expected:
            raise RefusalError(rule, received=f"{what}{value} in {place}, {expected} in {first}")


def _check_models(runs: Sequence[Run]) -> None:
    """Runs of one launch start with the same weights; gradients have one size in all launches."""
    values = [
        (run.round, f"{_place(run)} ({one.task})", one.initial_digest[:DIGITS], one.gradient_bytes)
        for run in runs
        if run.outcome.completed
        for one in run.records
    ]
    rule = "The model must not change while launches are made: start a new comparison."
    for number in sorted({run.round for run in runs}):
        digests = [(place, digest or None) for at, place, digest, _ in values if at == number]
        _check_same(rule, digests, "initial_digest ")
    _check_same(rule, [(place, size) for _, place, _, size in values], "gradient_bytes ")


def _proved_unlike(arm: Arm, comparison: Comparison) -> bool:
    """Whether a certificate says that the arm trains otherwise, or an arm that it breaks down."""
    unlike = [one.arm for one in comparison.certificates if not one.passed]
    if arm.for_breakdown:
        return arm.backend in {one.backend for one in unlike}
    return bool({arm.label, arm.twin_of} & {one.label for one in unlike})


def _check_machines(comparison: Comparison) -> None:
    """Each host has one processor and one software, and one of them is the comparison's machine."""
    machine, runs = comparison.machine, comparison.runs
    facts: dict[str, tuple[Run, MachineFacts]] = {}
    for run in runs:
        for record in run.records:
            first, expected = facts.setdefault(record.machine.host, (run, record.machine))
            if difference := _difference(expected, record.machine):
                what, before, now = difference
                version = "" if what == PROCESSOR else "version of "
                raise RefusalError(
                    SAME.format(f"{version}{what}"),
                    received=f"{now} in {_place(run)}, {before} in {_place(first)}",
                )
        found = sorted({(record.machine.host, record.machine.cpu_model) for record in run.records})
        if run.outcome.completed and (machine.host, machine.cpu_model) not in found:
            raise RefusalError(
                "Every run must have run on the machine of its comparison.",
                received=f"{', '.join(': '.join(one) for one in found)} in {_place(run)}, "
                f"and the comparison is of {machine.host}: {machine.cpu_model}",
            )
    hosts = [(run, {record.machine.host for record in run.records}) for run in runs]
    largest, all_hosts = max(hosts, key=lambda one: len(one[1]), default=(None, set()))
    for run, own in hosts:
        if largest and not own <= all_hosts:  # smaller runs use hosts of the largest one
            raise RefusalError(
                "All runs that are compared must have run on the same machines.",
                received=f"{', '.join(sorted(own))} in {_place(run)}, "
                f"{', '.join(sorted(all_hosts))} in {_place(largest)}",
            )


def _difference(first: MachineFacts, second: MachineFacts) -> tuple[str, str, str] | None:
    """What decides speed and arithmetic and differs, with both values; None: nothing does."""
    if first.cpu_model != second.cpu_model:
        return PROCESSOR, first.cpu_model, second.cpu_model
    for name in sorted({*first.packages, *second.packages}):
        before, now = (one.packages.get(name, "absent") for one in (first, second))
        if before != now:
            return name, before, now
    return None


# Arms that may be ranked


def certificates_by_arm(comparison: Comparison) -> dict[str, Certificate]:
    """The certificates by the label of their arm.

    Raises:
        RefusalError: an arm has two, so it is not known which one is valid.
    """
    found = {one.arm.label: one for one in comparison.certificates}
    if len(found) != len(comparison.certificates):
        raise RefusalError(
            "Each arm of a comparison may have one certificate.",
            received=", ".join(one.arm.label for one in comparison.certificates),
        )
    return found


def why_not_comparable(
    certificate: Certificate | None, runs: Sequence[Run], same_rows: Answer
) -> str:
    """Why an arm must not be ranked, in one sentence; empty: it may be.

    Args:
        certificate: of the arm.
        runs: of the arm, all of them.
        same_rows: over its completed runs.
    """
    if certificate is None:
        return NOT_VERIFIED
    if not certificate.passed:
        return certificate.reason
    for run in runs:
        if why_not := _of_another_run(certificate, run):
            return why_not
    if same_rows == "no":
        return "it was not fed the rows, in the order, that the other arms were"
    completed = [run for run in runs if run.outcome.completed]
    if completed and same_rows == "unknown":
        return "which rows it was fed was not recorded"
    if any(replicas_equal(run) == "no" for run in completed):
        return "the replicas end with different weights"
    return ""


def _of_another_run(certificate: Certificate, run: Run) -> str:
    """Why a certificate is not about this run; empty: it is."""
    # Every launch has its own seed; the certificate is valid for all of them.
    of_that_seed = run.spec.replace(seed=certificate.spec.seed)
    expected, ran = certificate.spec.content_hash, of_that_seed.content_hash
    if expected != ran:
        return (
            f"its certificate is of the run {expected[:HASH_DIGITS]}, "
            f"and it ran {ran[:HASH_DIGITS]} in {run.stage}"
        )
    hosts = {record.machine.host for record in run.records}
    if hosts and certificate.machine.host not in hosts:
        ran_on = ", ".join(sorted(hosts))
        return f"it was verified on {certificate.machine.host}, and ran on {ran_on}"
    for record in run.records:
        if difference := _difference(certificate.machine, record.machine):
            what, before, now = difference
            if what == PROCESSOR:
                return f"it was verified on {before}, and ran on {now}"
            return f"it was verified with {what} {before}, and ran with {now}"
    return ""
