"""Resume an interrupted comparison: on the same hosts, with the same code and circumstances."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from launch.remote.host_checks import machine_of
from ringside.certificates import store
from ringside.comparison.budget import parse_duration
from ringside.comparison.choose import circumstances
from ringside.comparison.contenders import with_more
from ringside.comparison.experiment import RESULTS
from ringside.comparison.hosts import fullest, links_between, ready_hosts
from ringside.stats.links import link_words, links_by_pair, same_link
from ringside.stats.summary import summarize
from ringside_core.specs import Circumstances, Comparison, Link, MachineFacts, RefusalError
from ringside_core.specs.noun import differences

DIGITS = 12


def reopened(folder: Path, *, budget: str | None) -> Comparison:
    """The comparison in a folder, ready to go on, with launches for another budget if one is given.

    Raises:
        RefusalError: there is none, it is finished, its runs do not match its arms, or the machine,
            packages, code or circumstances have changed.
    """
    path = folder / RESULTS
    comparison = _read(path)
    if comparison.ended_because and budget is None:
        raise RefusalError(
            "This comparison is finished.",
            received=comparison.ended_because,
            advice=f"Give a --budget for more launches, or write its report again: ringside report "
            f"{folder}",
        )
    if comparison.ended_because and comparison.division is None:
        raise RefusalError(
            "Only a comparison with a final can have more launches.",
            received=comparison.ended_because,
            advice="Start a new comparison.",
        )
    _refuse_changes(comparison, machine_of(comparison.placement))
    _refuse_other_runs(comparison, path)
    if budget is None:
        return comparison
    budget_s = comparison.spent_s + parse_duration(budget)
    asked = comparison.asked.replace(budget_s=budget_s, launches=None)
    again = comparison.replace(asked=asked, ended_because="")
    # To read the words of a comparison that ended, and to go on, is another look.
    return with_more(again.replace(looks=comparison.looks + bool(comparison.ended_because)))


def _read(path: Path) -> Comparison:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError(
            "--resume needs the folder of a comparison.",
            received=f"{path}: {error}" if isinstance(error, UnicodeDecodeError) else error,
            advice="If nothing was measured yet, start the comparison again: the certificates are "
            "used again.",
        ) from None
    return Comparison.from_json(text, origin=str(path))


def _refuse_changes(comparison: Comparison, machine: MachineFacts) -> None:
    """Refuse to mix results of two machines, sets of packages or versions of the code."""
    before, now = (one.model_dump(mode="json") for one in (comparison.machine, machine))
    for field, was, found in differences(before, now):
        raise RefusalError(
            f"A comparison must go on where it began: {field} must be the same.",
            received=f"{found or 'absent'}, and it was {was or 'absent'}",
            advice="Start a new comparison here.",
        )
    if comparison.code_version != store.code_version():
        raise RefusalError(
            "A comparison must go on with the code that it began with.",
            received=f"code {store.code_version()[:DIGITS]}, and it was "
            f"{comparison.code_version[:DIGITS] or 'not written down'}",
            advice="Start a new comparison.",
        )
    if comparison.circumstances is not None:
        refuse_other_circumstances(comparison.circumstances, circumstances(comparison.shared))
    arms = {arm.label: arm for arm in comparison.arms}
    for one in comparison.certificates:
        if one.arm.label not in arms:
            why = "there is no such arm"
        else:
            due = comparison.spec_of(arms[one.arm.label])
            why = store.stale(one, due, comparison.placement)
        if why:
            raise RefusalError(
                "The certificates must still hold.",
                received=f"{one.arm.label}: {why}",
                advice="Start a new comparison.",
            )


def _refuse_other_runs(comparison: Comparison, path: Path) -> None:
    arms = {arm.label: arm for arm in comparison.arms}
    made = [
        (f"runs.{index}.spec", run.spec, comparison.spec_of(arms[run.arm], run.round))
        for index, run in enumerate(comparison.runs)
    ]
    made += [
        (f"trials.{index}.run.spec", trial.run.spec, comparison.spec_of(trial.arm))
        for index, trial in enumerate(comparison.trials)
    ]
    for place, *specs in made:
        found, due = (one.model_dump(mode="json") for one in specs)
        for where, has, should in differences(found, due):
            raise RefusalError(
                "Each run must have the spec of its arm in that launch.",
                received=f"{path}: {place}.{where}={has!r}, and it should be {should!r}",
                advice="Start a new comparison.",
            )
    try:
        summarize(comparison)
    except RefusalError as error:
        raise RefusalError(
            error.rule, received=f"{path}: {error.received}", advice=error.advice
        ) from None


def refuse_other_circumstances(before: Circumstances, now: Circumstances) -> None:
    """Refuse to mix launches that were made under different circumstances; name both."""
    were, are = set(before.variables), set(now.variables)
    reasons = [f"{name} is there, and was not" for name in sorted(are - were)]
    reasons += [f"{name} was there, and is not" for name in sorted(were - are)]
    if not reasons and before.variables_sha256 != now.variables_sha256:
        found, was = (one.variables_sha256[:DIGITS] for one in (now, before))
        reasons = [f"{', '.join(now.variables)} with values of SHA-256 {found}, and it was {was}"]
    cores, before_cores = (", ".join(map(str, one.cores)) for one in (now, before))
    folder, before_folder = (one.folder or "nowhere" for one in (now, before))
    for what, received in (
        ("the cores", cores != before_cores and f"{cores}, and it was {before_cores}"),
        ("the environment variables, configuration files and packages", "; ".join(reasons)),
        (
            "the folder of its relative file names",
            folder != before_folder and f"{folder}, and it was {before_folder}",
        ),
    ):
        if received:
            raise RefusalError(
                f"A comparison must go on with {what} that it began with.",
                received=received,
                advice="Restore that, or start a new comparison.",
            )


def look_again(console: Console, comparison: Comparison, folder: Path) -> None:
    """Ask every host of an interrupted comparison whether it is still ready.

    Raises:
        RefusalError: a host is not ready, or it has another address, too few cores, or a link with
            another rate.
    """
    placement = comparison.placement
    if not placement.names:
        return
    specs = [comparison.spec_of(arm) for arm in comparison.arms]
    found = ready_hosts(specs, placement, folder)
    for name, facts in found.items():
        if facts.address != (was := comparison.addresses.get(name, "")):
            raise RefusalError(
                "A comparison must go on with the hosts that it began with.",
                received=f"{name} is {facts.address}, and it was {was or 'not used'}",
                advice="Start a new comparison.",
            )
    cores = {name: facts.cores for name, facts in found.items()}
    refuse_fewer_cores(comparison, fullest(specs, placement), cores)
    if comparison.links:
        now = links_between(console, placement, comparison.addresses)
        refuse_other_links(comparison.links, now)


def refuse_fewer_cores(
    comparison: Comparison, most: Mapping[str, int], cores: Mapping[str, int]
) -> None:
    """Refuse hosts that now have too few cores for their replicas.

    Raises:
        RefusalError: replicas would share cores, and did not before.
    """
    each = comparison.shared.resources.cores_per_replica
    if each is None or comparison.oversubscribe:
        return
    few = [
        f"{name} has {cores[name]} for {replicas} × {each}"
        for name, replicas in most.items()
        if cores[name] < replicas * each
    ]
    if few:
        raise RefusalError(
            "A comparison must go on with the cores that it began with.",
            received=f"usable cores of hosts: {'; '.join(few)}",
            advice="Give the hosts their cores back, or start a new comparison.",
        )


def refuse_other_links(before: Sequence[Link], now: Sequence[Link]) -> None:
    """Refuse to mix launches over links whose rate has changed.

    Raises:
        RefusalError: with both rates of each link that changed.
    """
    today = links_by_pair(now)
    changed = []
    for link in before:
        found = today.get((link.sender, link.receiver))
        if found is None or not same_link(link, found):
            is_now = "unknown" if found is None else link_words(found)
            changed.append(
                f"{link.sender} → {link.receiver} is {is_now}, and it was {link_words(link)}"
            )
    if changed:
        raise RefusalError(
            "A comparison must go on with links of the rates that it began with.",
            received="; ".join(changed),
            advice="Go on when the network is as before, or start a new comparison.",
        )
