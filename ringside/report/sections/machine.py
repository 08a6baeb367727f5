"""What the machine did to the runs, beside their own cores and with them."""

from collections.abc import Iterator

from ringside.report.blocks import Caveat
from ringside.stats.rounds import DISTURBED_SHARE, beside
from ringside_core.specs import Comparison
from ringside_core.text import listed, percent, plural


def beside_line(comparison: Comparison) -> str:
    """How much others used of all cores, at most; empty: not counted, or the runs had all."""
    shares = [share for run in comparison.runs if (share := beside(run)) is not None]
    if not shares:
        return ""
    middle = sorted(shares)[len(shares) // 2]
    return f"others used {percent(middle)} in the median run, {percent(max(shares))} at most"


def others_beside(comparison: Comparison) -> Iterator[Caveat]:
    """Others on cores that the run did not use; no launch is left out for that."""
    found = [run for run in comparison.runs if (beside(run) or 0.0) > DISTURBED_SHARE]
    if found:
        worst = max(found, key=lambda run: beside(run) or 0.0)
        cores = worst.load.machine_cores if worst.load else 0
        yield Caveat(
            f"In {plural(len(found), 'run')} others used more than {percent(DISTURBED_SHARE)} of "
            f"all cores of the machine, at most {percent(beside(worst) or 0.0)} of {cores} "
            f"({worst.arm}). Memory, caches and the clock rate are shared, and no launch was "
            "left out for that.",
            "Measure while nothing else uses the machine.",
        )


def threads_of_a_core(comparison: Comparison) -> Iterator[Caveat]:
    """Arms whose processors are fewer physical cores."""
    found: dict[str, str] = {}
    for run in comparison.runs:
        pairs = {
            (record.machine.host, processor, core)
            for record in run.records
            for processor, core in zip(record.cores, record.physical_cores, strict=False)
        }
        cores = len({(host, core) for host, _, core in pairs})
        if cores < len(pairs):
            found[run.arm] = f"{run.arm} ({plural(cores, 'core')} for {len(pairs)} processors)"
    if found:
        yield Caveat(
            "Two processors of some arms are threads of one core (hyper-threads), which are not "
            f"two cores: {listed(list(found.values()))}.",
            "Use fewer replicas, or fewer --cores-per-replica.",
        )


def paused(comparison: Comparison) -> Iterator[Caveat]:
    """Arms that ran on more processors than their container may use at once."""
    found: dict[str, str] = {}
    for run in comparison.runs:
        for quota in {one.machine.cpu_quota for one in run.records} - {None}:
            on_host = {
                (one.machine.host, core)
                for one in run.records
                if one.machine.cpu_quota == quota
                for core in one.cores
            }
            hosts = {host for host, _ in on_host}
            if quota is not None and quota * len(hosts) < len(on_host):
                found[run.arm] = f"{run.arm} ({quota:g} of {len(on_host) // len(hosts)})"
    if found:
        yield Caveat(
            "A container's CPU quota is smaller than the processors of its replicas, so the "
            f"kernel pauses them: {listed(list(found.values()))}.",
            "Raise the quota, or use fewer replicas.",
        )
