"""When a prediction is refused: it would be about something that was not measured."""

from ringside.predict.prediction import Prediction
from ringside.stats.links import (
    SAME_LINK,
    congestion_controls,
    link_words,
    links_by_pair,
    rate_words,
    same_link,
    same_rate,
    slowest_bits_per_s,
)
from ringside_core.specs import (
    Arm,
    Communication,
    Comparison,
    Host,
    RefusalError,
    assign_slots,
)
from ringside_core.specs.options import ParameterServerOptions

SAME = (
    "workload", "workload_options", "precision", "gradient_accumulation_steps", "pipeline",
    "trained_by", "keras", "as_shipped", "policy",
    "resources",
)  # fmt: skip


def hosts_of(comparison: Comparison, replicas: int) -> tuple[Host, ...]:
    """The hosts that runs of so many replicas fill, with the slots that they use."""
    return assign_slots(comparison.hosts, replicas)


def refuse_no_model(arm: Arm) -> bool:
    """Refuse stacks without a model; else whether a coordinator deals out the steps."""
    model = arm.capabilities.process_model
    if model == "single":
        raise RefusalError(
            "Replicas of one process send nothing over a link, so nothing is predicted for them.",
            received=arm.group,
        )
    if isinstance(arm.options, ParameterServerOptions) and arm.options.servers > 1:
        raise RefusalError(
            "Parameter servers are predicted only if there is one.",
            received=f"{arm.group} with {arm.options.servers}",
        )
    return model == "coordinator"


def refuse_failed(comparison: Comparison, group: str) -> None:
    """Refuse a stack that does not compute the same as the reference."""
    for one in comparison.certificates:
        if one.arm.group == group and one.arm.replicas <= 2 and not one.passed:
            raise RefusalError(
                "Only stacks that compute the same as the reference are predicted.",
                received=f"{one.arm.label} is not certified: {one.reason}",
            )


def refuse_one_host(comparison: Comparison, group: str) -> None:
    """Refuse runs at two replicas that used no link: their records name one host."""
    labels = {arm.label for arm in comparison.arms if arm.group == group and arm.replicas == 2}
    for run in comparison.runs:
        names = {record.machine.host for record in run.records if record.role == "replica"}
        if run.arm in labels and run.outcome.completed and len(names) < 2:
            raise RefusalError(
                "Two replicas must have been on two hosts: then they used the link between them.",
                received=f"{run.arm} in round {run.round}: both on {_named(names)}",
                advice="Give each host one slot in the hostfile.",
            )


def refuse_unknown_link(group: str, far_at_two: int, bits_per_s: float | None) -> None:
    """Refuse parameter servers if no run used their link, or nobody measured it."""
    if far_at_two == 0:
        raise RefusalError(
            "One of two workers must have been on another host than their server.",
            received=f"{group} ×2: both on its host",
            advice="Give each host one slot in the hostfile, or name the server's with "
            "--servers-on.",
        )
    if bits_per_s is None:
        raise RefusalError(
            "What the server's link carries must be known.",
            received=f"{group}: neither the runs nor the all-reduces name a link",
            advice="Measure it: ringside allreduce --replicas 2 --hostfile ….",
        )


def refuse_other_hosts(comparison: Comparison, communication: Communication, origin: str) -> None:
    """Refuse all-reduces that were not between the two hosts that two replicas ran on."""
    ours = {host.name for host in hosts_of(comparison, 2)} if comparison.hosts else set()
    theirs = set(communication.hosts)
    if theirs != ours if comparison.hosts else communication.several_hosts:
        raise RefusalError(
            "Runs and all-reduces must be between the same hosts.",
            received=f"two replicas: {_named(ours)}; {origin}: {_named(theirs)}",
            advice="Measure there: ringside allreduce --replicas 2 --hostfile …, and name its "
            "folder with --communication. Each host needs one slot.",
        )


def link_notes(comparison: Comparison, communication: Communication | None) -> tuple[str, ...]:
    """Refuse all-reduces over another link than the runs used; a note if that is not known."""
    if not comparison.hosts or communication is None:
        return ()
    runs, reduced = links_by_pair(comparison.links), links_by_pair(communication.links)
    for pair in runs.keys() & reduced.keys():
        if not same_link(runs[pair], reduced[pair]):
            raise RefusalError(
                f"Runs and all-reduces must be over the same link, within {SAME_LINK:.0%} and "
                "under the same congestion control of TCP.",
                received=f"{' to '.join(pair)}: {link_words(runs[pair])} before the runs, "
                f"{link_words(reduced[pair])} before the all-reduces",
                advice="Repeat one of the two: ringside allreduce --replicas 2 --hostfile ….",
            )
    if runs.keys() & reduced.keys():
        return ()
    return (
        "The link was not measured both before the runs and before the all-reduces, so nobody "
        "knows whether it was the same.",
    )


def refuse_another(
    prediction: Prediction, predicted: Comparison, measured: Comparison
) -> tuple[str, ...]:
    """Refuse to check a prediction with runs of something else; notes on what is not known."""
    if not measured.runs:
        raise RefusalError("A comparison without runs says nothing.", received=measured.name)
    for field in SAME:
        mine, yours = (getattr(one.shared, field) for one in (predicted, measured))
        if mine != yours:
            raise RefusalError(
                "A prediction is checked by runs of the same model, in the same way.",
                received=f"{field}: {mine!r} predicted, {yours!r} measured",
            )
    if bool(predicted.hosts) != bool(measured.hosts):
        raise RefusalError(
            "A prediction is checked by runs between hosts of the same kind.",
            received="one of the two comparisons is of one machine",
        )
    if not measured.hosts:
        return ()
    _refuse_other_packing(prediction, measured)
    if len(controls := congestion_controls((*predicted.links, *measured.links))) > 1:
        raise RefusalError(
            "A prediction is checked by runs under the same congestion control of TCP.",
            received=" and ".join(controls),
        )
    rate = prediction.bits_per_s or prediction.measured_bits_per_s
    found = slowest_bits_per_s(measured.links)
    if rate is None or found is None:
        return (
            "The link of the runs that check the prediction is not known: it may be another one.",
        )
    if not same_rate(rate, found):
        raise RefusalError(
            f"A prediction is checked by runs over the link it is for, within {SAME_LINK:.0%}.",
            received=f"{rate_words(rate)} predicted, {rate_words(found)} measured",
            advice="Predict for that link: use --rate.",
        )
    return ()


def _refuse_other_packing(prediction: Prediction, measured: Comparison) -> None:
    sizes = {step.replicas for stack in prediction.stacks for step in stack.steps} - {1}
    for size in sorted(sizes & {arm.replicas for arm in measured.arms}):
        used = hosts_of(measured, size)
        if any(host.slots != prediction.replicas_per_host for host in used):
            raise RefusalError(
                "A prediction is checked by runs with as many replicas on each host.",
                received=f"×{size}: {prediction.replicas_per_host} on each predicted; measured: "
                + ", ".join(f"{host.slots} on {host.name}" for host in used),
                advice="Ask for them with --replicas-per-host.",
            )


def _named(hosts: set[str]) -> str:
    return ", ".join(sorted(hosts)) or "one machine"
