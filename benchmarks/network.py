"""Measure how much of a link each stack reaches, and with which setting. On a lab of its own.

    python benchmarks/network.py   # 2 hosts at 10, 100, 1000 Mbit/s, 4 at 100; about ten minutes
    python benchmarks/network.py --rates 1gbit --hosts 2 --sizes 64MiB --stacks "horovod gloo,mpi"
    python benchmarks/network.py --rates 100mbit --congestion-control bbr

Needs root, as `ringside lab up` does. For each number of hosts it makes a lab, in which each host
has its share of the cores. For each rate it sets the links and measures them by a plain TCP
transfer. Then each stack sums arrays over the hosts, one rank a host, as
`ringside allreduce --hostfile` does. With parameter servers, the last host serves a variable that
each of the others reads and adds to. To save time, only the first number of hosts runs at every
rate; the others, and bare MPI, run at the middle rate alone.

It prints Markdown: a line for each measurement, and the best setting of each stack. `of link` is
the least time that the slowest link allows ÷ the median time of the slowest rank. `CPU` is CPU
seconds per wall second of the busiest rank, beside what its host may take. If it takes all of that,
the link waits for the processor. MPI waits by asking again and again, so its CPU says nothing. CPU
of parameter servers is not counted. `?` means more than the link carries, so the link was not as
measured. Such a line is never the best setting, nor is one with wrong elements. Every sample is in
runs/NAME.
"""

import argparse
import dataclasses
import os
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launch import Site  # noqa: E402
from launch.remote.host_checks import check_hosts  # noqa: E402
from ringside.collectives.link import measure_links  # noqa: E402
from ringside.collectives.place import Place  # noqa: E402
from ringside.collectives.request import parse_sizes  # noqa: E402
from ringside.collectives.run import measure_stacks, samples_csv  # noqa: E402
from ringside.collectives.stacks import parse_stacks, stack_of  # noqa: E402
from ringside.lab import Lab  # noqa: E402
from ringside.lab.lab import CONGESTION_CONTROL  # noqa: E402
from ringside.report.words import stack_name  # noqa: E402
from ringside.stats.links import (  # noqa: E402
    IMPOSSIBLE,
    least_seconds,
    share_of_link,
    slowest_bits_per_s,
)
from ringside_core.specs import (  # noqa: E402
    Communication,
    Host,
    Placement,
    RefusalError,
    Timing,
    write_whole,
)
from ringside_core.text import byte_size  # noqa: E402

NAME = "bench"
STACKS = (
    "mpi,mpi:btl_tcp_flags=9,horovod mpi,horovod mpi:btl_tcp_flags=9,horovod gloo,"
    # Without NCCL AUTO is RING.
    "tf.distribute RING,tf.distribute RING:bytes_per_pack=1048576,"
    "parameter_server"
)
# Longest time of one operation; if the link is too slow, larger arrays are left out.
LONGEST_S = 2.5
REPETITIONS = 3
ENOUGH = 0.9
HEADINGS = ("rate", "hosts", "stack", "size", "ms", "busbw, Gbit/s", "of link", "CPU", "wrong")


@dataclass(frozen=True)
class Line:
    """One measurement, as it is printed."""

    rate: str
    hosts: int
    cores: float
    stack: str
    timing: Timing
    bits_per_s: float

    @property
    def share(self) -> float:
        """Of the slowest link."""
        return share_of_link(self.timing, num_hosts=self.hosts, bits_per_s=self.bits_per_s)

    def cells(self) -> tuple[str, ...]:
        """Under HEADINGS; each is the median over the repetitions of the slowest rank."""
        slowest_s = statistics.median(map(max, self.timing.seconds))
        # With one rank a host the share is that of the bus bandwidth; push/pull has none.
        bus = self.share * self.bits_per_s if self.timing.operation == "allreduce" else None
        return (
            self.rate,
            str(self.hosts),
            stack_name(self.stack),
            byte_size(self.timing.size_bytes),
            f"{1e3 * slowest_s:.1f}",
            "–" if bus is None else f"{bus / 1e9:.3g}",
            f"{self.share:.0%}" + (" ?" if self.share > IMPOSSIBLE else ""),
            self.cpu(),
            f"**{self.timing.wrong:,}**" if self.timing.wrong else "0",
        )

    @property
    def sound(self) -> bool:
        """Whether it may be the best setting: no wrong element, and no more than the link."""
        return not self.timing.wrong and self.share <= IMPOSSIBLE

    def cpu(self) -> str:
        """`0.31 of 1`: of the busiest rank."""
        wall = [sum(of_rank) for of_rank in zip(*self.timing.seconds, strict=True)]
        if not self.timing.cpu_s:
            return "–"
        busiest = max(c / w for c, w in zip(self.timing.cpu_s, wall, strict=True))
        return f"{busiest:.2f} of {self.cores:g}"


def main() -> None:
    """Measure, print, keep."""
    asked = _asked()
    folder = asked.output / (asked.name or f"network-{datetime.now():%Y%m%d-%H%M%S}")
    began = time.monotonic()
    lines: list[Line] = []
    print("|", " | ".join(HEADINGS), "|")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for line in _lines(asked, folder):
        lines.append(line)
        print("|", " | ".join(line.cells()), "|", flush=True)
    print()
    _print_best(lines)
    print(f"\n{time.monotonic() - began:.0f} s; every sample: {folder}")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", default="10mbit,100mbit,1gbit")
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--sizes", default="1MiB,16MiB,64MiB")
    parser.add_argument("--stacks", default=STACKS)
    parser.add_argument(
        "--congestion-control",
        default=CONGESTION_CONTROL,
        help="TCP congestion control of the hosts",
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--output", type=Path, default=ROOT / "runs")
    parser.add_argument("--name", help="name of the folder")
    return parser.parse_args()


def _lines(asked: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """Make a lab for each number of hosts; at each rate of its links, run every stack."""
    stacks = parse_stacks(asked.stacks)
    all_rates = asked.rates.split(",")
    middle = all_rates[len(all_rates) // 2]
    for number, count in enumerate(map(int, asked.hosts.split(","))):
        sizes = parse_sizes(asked.sizes, ranks=count)
        rates = [middle] if number else all_rates
        lab = Lab.up(
            name=NAME, hosts=count, rate=rates[0], congestion_control=asked.congestion_control
        )
        try:
            for rate in rates:
                lab.set_rate(None, rate)
                run_dir = folder / f"{rate}-{count}-hosts"
                here = [s for s in stacks if rate == middle or stack_of(s).family != "mpi"]
                if not here:
                    continue
                communication = _measure(lab, here, sizes, run_dir, asked.repetitions)
                yield from _lines_of(communication, rate, lab.hosts[0].cores)
        finally:
            lab.down()


def _measure(
    lab: Lab, stacks: Sequence[str], sizes: Sequence[int], folder: Path, repetitions: int
) -> Communication:
    """Run all stacks on the lab as it is."""
    hosts = tuple(Host(name=host.name) for host in lab.hosts)
    placement, site = Placement(hosts=hosts, interface=lab.interface), Site.here()
    folder.mkdir(parents=True)
    facts = check_hosts(placement, site, folder=folder)
    links = measure_links(placement, site, tools=("tcp",))
    place = dataclasses.replace(Place.on_hosts(len(hosts), placement, facts), links=links)
    slowest = slowest_bits_per_s(links)
    assert slowest is not None
    communication = measure_stacks(
        stacks,
        [size for size in sizes if size == min(sizes) or _is_quick(size, len(hosts), slowest)],
        place=place,
        most=repetitions,
        budget_s=1e-3,  # as few repetitions as allowed
        folder=folder,
        command=shlex.join(sys.argv),
        operations=("allreduce", "push_pull"),
    )
    write_whole(folder / "communication.json", communication.to_json())
    write_whole(folder / "samples.csv", samples_csv(communication))
    return communication


def _is_quick(size: int, hosts: int, bits_per_s: float) -> bool:
    least_s = least_seconds(
        "allreduce", size, num_ranks=hosts, num_hosts=hosts, bits_per_s=bits_per_s
    )
    return least_s <= LONGEST_S


def _lines_of(communication: Communication, rate: str, cores: float) -> Iterator[Line]:
    bits_per_s = slowest_bits_per_s(communication.links)
    assert bits_per_s is not None
    for stack in communication.stacks:
        if not stack.outcome.completed:
            print(f"{stack.stack}: {stack.outcome}", file=sys.stderr)
        for timing in stack.timings:
            hosts = len(communication.hosts)
            yield Line(rate, hosts, cores, stack.stack, timing, bits_per_s)


def _print_best(lines: Sequence[Line]) -> None:
    """The best setting of each stack on each link, at the largest array that was tried there."""
    print("| rate | hosts | stack | best setting | of link | 90 % |")
    print("|---|---:|---|---|---:|---|")
    for rate, hosts in dict.fromkeys((line.rate, line.hosts) for line in lines):
        here = [line for line in lines if (line.rate, line.hosts) == (rate, hosts)]
        largest = max(line.timing.size_bytes for line in here)
        for stack in dict.fromkeys(_without_settings(line) for line in here):
            sound = [
                line
                for line in here
                if line.timing.size_bytes == largest
                and _without_settings(line) == stack
                and line.sound
            ]
            told = ("–", "–", "no: nothing sound was measured")
            if sound:
                best = max(sound, key=lambda line: line.share)
                reached = "yes" if best.share >= ENOUGH else f"no: CPU {best.cpu()}"
                told = (best.stack.partition(":")[2] or "as it is", f"{best.share:.0%}", reached)
            print("|", " | ".join((rate, str(hosts), stack_name(stack), *told)), "|")


def _without_settings(line: Line) -> str:
    return line.stack.partition(":")[0]


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("A lab needs root: start this with sudo.")
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # so that the lab is always taken down
    try:
        main()
    except RefusalError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
