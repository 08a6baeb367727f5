"""Ask all hosts at once whether they are ready, before anything starts; report all problems."""

import contextlib
import functools
import json
import secrets
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from launch.interrupts import Interrupts
from launch.placement import slots_used
from launch.remote import host_facts, ssh
from launch.site import Site
from ringside_core.folders import default_data_dir
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import MachineFacts, Noun, Placement, RefusalError, RunSpec
from ringside_core.workloads.registry import WORKLOADS, own_file

# ssh gives up connecting after 10 s (ssh.OPTIONS); a machine that then does not answer is stuck.
ANSWER_S = 30.0
CLOCK_S = 1.0  # seconds by which clocks may differ: times of files tell which outcome came first
SCRIPT = Path(host_facts.__file__).resolve()
FIRST_HOST_S = 60.0
# One line: to csh, a quoted text ends with its line.
ASK_FACTS = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from ringside_core.readings.machine import machine_facts; "
    "print(machine_facts().model_dump_json())"
)


class HostFacts(Noun):
    """A host that is ready.

    Attributes:
        address: IPv4 address of its name here; empty: none, or the run is on this machine only.
        interface: the interface that the run uses there; empty: it stays on this machine.
        cores: number of cores that processes may use.
    """

    address: str
    interface: str
    cores: int


class _Answer(Noun):
    """What one host said to all questions; its clock minus ours is known to half the round trip."""

    clock_offset_s: float
    clock_round_trip_s: float
    said: dict[str, Any]


def check_hosts(
    placement: Placement,
    site: Site,
    *,
    folder: Path,
    specs: Sequence[RunSpec] = (),
    may_share_cores: bool = True,
) -> dict[str, HostFacts]:
    """Ask every host of a placement, used or not. Without a hostfile nothing is asked.

    Args:
        placement: its hosts.
        site: this machine.
        folder: where results will go; it need not exist yet.
        specs: runs to come. Every host must have what they read, and cores for their replicas.
        may_share_cores: whether the command has --oversubscribe.

    Raises:
        RefusalError: every problem of every host, or a run that has no room.
    """
    if placement.hosts is None:
        return {}
    used = [slots_used(spec, placement) for spec in specs]
    most = {
        name: max((slots.get(name, 0) for slots in used), default=0) for name in placement.names
    }
    advice = "--oversubscribe to insist" if may_share_cores else "give it fewer slots"
    facts, problems = _examined(
        placement, site, folder=folder, specs=specs, replicas=most, too_many=advice
    )
    if problems:
        raise _not_ready(problems)
    return facts


def usable_hosts(
    placement: Placement, site: Site, *, folder: Path, spec: RunSpec, interrupts: Interrupts
) -> tuple[Placement, list[str]]:
    """The placement with the hosts that can be used now, maybe none; what is wrong with the others.

    Each must have cores for its slots, as far as the run needs so many. Arguments as of
    `check_hosts`; `interrupts` are held by a caller who asks from a thread.

    Raises:
        RefusalError: this machine has a problem.
    """
    hosts = placement.hosts or ()
    slots = {host.name: min(host.slots, spec.topology.num_replicas) for host in hosts}
    _, problems = _examined(
        placement, site, folder=folder, specs=[spec], replicas=slots, interrupts=interrupts
    )
    if any(name not in slots for name, _ in problems):
        raise _not_ready(problems)
    bad = {name for name, _ in problems}
    there = tuple(host for host in hosts if host.name not in bad)
    servers = tuple(name for name in placement.servers_on if name not in bad)
    return placement.replace(hosts=there, servers_on=servers), list(map(": ".join, problems))


def _not_ready(problems: Sequence[tuple[str, str]]) -> RefusalError:
    return RefusalError(
        "Every host must be ready before anything is started.",
        received="\n  ".join([f"{len(problems)} to mend", *map(": ".join, problems)]),
    )


def _examined(
    placement: Placement,
    site: Site,
    *,
    folder: Path,
    specs: Sequence[RunSpec],
    replicas: Mapping[str, int],
    too_many: str = "--oversubscribe to insist",
    interrupts: Interrupts | None = None,
) -> tuple[dict[str, HostFacts], list[tuple[str, str]]]:
    """What each host said that has no problem; the problems: (host or `this machine`, what)."""
    with _token(folder) as (file, content):
        questions = {"token": str(file), "names": placement.names, "paths": _paths(specs, site)}
        answers = _ask_all(placement.names, site, questions, interrupts)
        here = host_facts.facts(questions)
    heard = {name: answer for name, answer in answers.items() if isinstance(answer, _Answer)}
    problems = [
        (n, answer.why) for n, answer in answers.items() if isinstance(answer, ssh.NoAnswer)
    ]
    machines: dict[str, str] = {}
    for name, answer in heard.items():
        if (first := machines.setdefault(answer.said["identity"], name)) != name:
            same = f"the same machine as {first}; name it once, its slots added up"
            problems.append((name, same))
    for name, answer in heard.items():
        problems += [(name, what) for what in _differences(answer, here, content, folder)]
        cores = answer.said["cores"]
        if replicas[name] > cores and not placement.oversubscribe:
            many = f"{replicas[name]} replicas on {cores} usable cores ({too_many})"
            problems.append((name, many))
    interface = ""
    if away := site.away(placement.names):
        interface = site.interface(away, placement.interface)
        problems += _network_problems(interface, away, heard, here)
    addresses = here["addresses"]
    facts = {
        name: HostFacts(address=addresses[name], interface=interface, cores=answer.said["cores"])
        for name, answer in heard.items()
        if name not in dict(problems)
    }
    return facts, problems


def _differences(
    answer: _Answer, here: Mapping[str, Any], token: str, folder: Path
) -> Iterator[str]:
    """What differs on a host from this machine."""
    there, own = answer.said["versions"], here["versions"]
    for what in sorted({*there, *own}):
        if there.get(what) != own.get(what):
            yield f"{what} is {there.get(what, 'missing')} there, {own.get(what, 'missing')} here"
    if answer.said["token"] != token:
        yield f"it does not see {folder.absolute()}: results need a folder that all hosts share"
    elif not answer.said["writable"]:
        yield f"it may not write in {folder.absolute()}"
    for path in answer.said["missing"]:
        yield f"{path} is not there"
    if abs(answer.clock_offset_s) - answer.clock_round_trip_s / 2 > CLOCK_S:
        yield f"its clock is {answer.clock_offset_s:+.1f} s off; set both by NTP"


def _network_problems(
    interface: str, away: Sequence[str], heard: Mapping[str, _Answer], here: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Whether every name means the same address of the run's interface, on every host."""
    for name in away:
        if name in heard and not here["addresses"][name]:
            yield name, "only ssh knows the name; put it into DNS or /etc/hosts"
    if not interface:
        return
    if interface not in here["interfaces"]:
        yield "this machine", _no_interface(interface, here["interfaces"])
    for name, answer in heard.items():
        if interface not in answer.said["interfaces"]:
            yield name, _no_interface(interface, answer.said["interfaces"])
            continue
        addresses = answer.said["interfaces"][interface]
        for asker, other in heard.items():
            if (found := other.said["addresses"][name]) not in addresses:
                # Whom this machine finds has its address; then who asked is wrong.
                bad = asker if here["addresses"][name] in addresses else name
                meant = f"on {asker} the name {name} means {found or 'nothing'}, not "
                yield bad, f"{meant}{' or '.join(addresses)} of {interface}; see /etc/hosts there"
                if bad == name:
                    break


def _no_interface(interface: str, seen: Mapping[str, list[str]]) -> str:
    return f"no interface {interface}, there are {', '.join(sorted(seen))} (--interface)"


def _paths(specs: Sequence[RunSpec], site: Site) -> list[str]:
    """What every host must have at the same path: the working folder, data, own workloads."""
    wanted = [file for spec in specs if (file := own_file(spec.workload)) is not None]
    # Data in a bucket (gs://) have no path.
    wanted += [spec.data_dir for spec in specs if spec.data_dir and "://" not in spec.data_dir]
    # If a public data set is not here either, the tasks download it, or say what to fetch.
    for spec in specs:
        row, kept = WORKLOADS.get(spec.workload), default_data_dir() / spec.workload
        public = row is not None and row.function.startswith("ringside_core.workloads.public:")
        wanted += [str(kept)] if public and not spec.data_dir and kept.exists() else []
    return [site.cwd, *dict.fromkeys(str(Path(site.cwd, path)) for path in wanted)]


@contextlib.contextmanager
def _token(folder: Path) -> Iterator[tuple[Path, str]]:
    """A file with a secret in the folder, or in the nearest one above it that exists."""
    content = secrets.token_hex(16)
    file = above = folder.absolute()
    try:
        try:
            while not above.is_dir():
                above = above.parent
            file = above / f".ringside-{content[:8]}"
            file.write_text(content)
        except OSError as error:
            rule = "The folder for the results must be writable."
            raise RefusalError(rule, received=error) from None
        yield file, content
    finally:
        with contextlib.suppress(OSError):  # if it could not be written, it does not exist
            file.unlink()


def _ask_all(
    names: Sequence[str],
    site: Site,
    questions: Mapping[str, Any],
    interrupts: Interrupts | None = None,
) -> dict[str, _Answer | ssh.NoAnswer]:
    """Ask every host; anything that goes wrong is a problem of that host."""

    def talk() -> Generator[bytes, str, _Answer]:
        if (yield b"") != "ready\n":
            raise ValueError
        sent = time.time()
        clock = float((yield b"?\n"))
        received = time.time()
        said = json.loads((yield f"{json.dumps(questions)}\n".encode()))
        answer = {
            "clock_offset_s": clock - (sent + received) / 2,
            "clock_round_trip_s": max(0.0, received - sent),
            "said": said,
        }
        # What does not fit is a ValueError, which is this host's; _Answer(…) would refuse at once.
        return _Answer.model_validate(answer)

    here = [*filter(site.is_local, names)]
    commands = dict.fromkeys(names, (site.python, "-I", str(SCRIPT), "facts"))
    return ssh.talk_to_all(commands, talk, limit_s=ANSWER_S, here=here, interrupts=interrupts)


def machine_of(placement: Placement) -> MachineFacts:
    """Facts of the first host, where every serial run is and every other one begins.

    The machine that starts the runs may be a login node, on which none of them is.

    Raises:
        RefusalError: the host does not answer, or says something else.
    """
    if not placement.names or Site.here().is_local(placement.names[0]):
        return machine_facts()
    return _remote_facts(placement.names[0])


@functools.cache  # they do not change while a command runs
def _remote_facts(host: str) -> MachineFacts:
    site = Site.here()
    command = (site.python, "-c", ASK_FACTS.format(root=site.root))
    answer = ssh.ask_all({host: command}, limit_s=FIRST_HOST_S)[host]
    if isinstance(answer, str):
        try:
            return MachineFacts.model_validate_json(answer)
        except ValidationError:
            answer = ssh.nonsense(site.python, answer)
    raise RefusalError(
        "The first host must say what it is.",
        received=f"{host}: {answer.why}",
        advice=f"Try: ssh {host} hostname",
    )
