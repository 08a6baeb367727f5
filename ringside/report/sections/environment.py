"""Where and how a comparison was made: machine, versions, command, digest of the samples."""

import time

from ringside.report.blocks import Section, Terms
from ringside.report.source import report_version
from ringside.stats.links import link_words, links_by_pair
from ringside_core.specs import Comparison
from ringside_core.text import byte_size, listed, plural


def environment_section(comparison: Comparison, digest: str) -> Section:
    """Everything that is needed to repeat the comparison.

    Args:
        comparison: what was seen.
        digest: SHA-256 of its results.json.
    """
    machine = comparison.machine
    answer = (
        f"{machine.host}: {plural(machine.cores, 'core')} of {machine.cpu_model}, "
        f"{byte_size(machine.memory_bytes)}."
    )
    if len(comparison.addresses) > 1:
        answer = f"{plural(len(comparison.addresses), 'host')}, of which the first is {answer}"
    facts = Terms(tuple(facts_of(comparison, digest)), label="Machine and command", facts=True)
    return Section("environment", "Where was it measured?", "Environment", answer, (facts,))


def facts_of(comparison: Comparison, digest: str) -> list[tuple[str, str]]:
    """(name, value)."""
    machine = comparison.machine
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(comparison.created_unix_s))
    return [
        ("Made", made),
        ("Command", comparison.command),
        ("Seed of the order", str(comparison.seed)),
        *hosts_and_links(comparison),
        ("Host", machine.host),
        ("Processor", f"{machine.cpu_model}, {plural(machine.cores, 'core')}"),
        ("Memory", f"{byte_size(machine.memory_bytes)}"),
        ("GPUs", listed(machine.gpus) if machine.gpus else "none found"),
        ("Kernel", machine.kernel),
        ("Python", machine.python),
        *sorted(machine.packages.items()),
        ("Digest of the raw samples", digest),
        ("Code of this report", report_version()),
    ]


def hosts_and_links(comparison: Comparison) -> list[tuple[str, str]]:
    """(name, value) of hosts and links; empty if the comparison ran on one machine."""
    if not comparison.hosts:
        return []
    slots = {host.name: host.slots for host in comparison.hosts}
    hosts = [
        f"{name} ({', '.join(filter(None, (address, plural(slots[name], 'slot'))))})"
        for name, address in comparison.addresses.items()
    ]
    facts = [("Hosts used", ", ".join(hosts)), ("Interface", comparison.interface or "none")]
    if comparison.servers_on:
        facts.append(("Parameter servers on", ", ".join(comparison.servers_on)))
    if comparison.oversubscribe:
        facts.append(("Oversubscribed", "the user allowed more processes than cores on a host"))
    at_end = links_by_pair(comparison.links_at_end)
    for link in comparison.links:
        text = f"{link_words(link)} before the first run"
        if (last := at_end.get((link.sender, link.receiver))) is not None:
            text += f", {link_words(last)} after the last"
        facts.append((f"Link {link.sender} → {link.receiver}", f"{text}, plain TCP"))
    return facts
