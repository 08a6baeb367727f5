"""Compare the bare-MPI line of `ringside allreduce` with what others measure, interleaved.

    python benchmarks/mpi_reference.py                  # against a plain loop in mpi4py
    python benchmarks/mpi_reference.py --osu FOLDER     # against OSU's own programs, in C

FOLDER holds `osu_allreduce` and `osu_bcast` of the OSU Micro-Benchmarks 7.4, built by
`./configure CC=mpicc CXX=mpicxx && make` with .venv activated (c/mpi/collective/blocking). mpi4py
has no benchmark of an all-reduce. demo/ of its 4.1.2 source distribution has osu_bcast.py, which
starts one clock for all repetitions, in rank 0 alone, with no barrier between them. That gives the
rate at which a root sends, not the time of a broadcast. So the plain loop below is used instead; it
does line by line what the C programs do.

Every round runs Ringside's loop twice and the reference once, in an order that is drawn. All use
the command line of mpirun that `ringside allreduce` uses, with every rank pinned to the same cores.
For each size it prints medians over the rounds, the ratio Ringside ÷ reference with the range over
the rounds, and the noise floor: Ringside ÷ Ringside of the two runs of a round, both ways round.

The same on both sides: float32 sums from one array into another (a broadcast has one array). Before
each repetition the array is filled again, then a barrier follows. A clock runs around the
repetition, and the result is checked after it. The figure is the median over the repetitions of
each rank, then the mean of the ranks (OSU: `-c -z50`, of rank 0, with `-T mpi_float`, because its
default sums bytes).

Different: a call through mpi4py takes a microsecond or two more than one in C. That is visible at
the smallest sizes. The plain loop pays for it as Ringside does.

OSU's default, without `-c`, answers another question: it uses the same arrays again and again, and
each repetition begins at once after the barrier that follows the one before. `--again` makes the
reference do that, to see by how much the answers differ. Ringside's loop stays as it is.
"""

import argparse
import dataclasses
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launch import Site, make_plan  # noqa: E402
from launch.children import environment  # noqa: E402
from ringside.collectives.place import Place  # noqa: E402
from ringside.collectives.request import parse_sizes  # noqa: E402
from ringside.collectives.run import measure_stacks  # noqa: E402
from ringside.stats.collectives import times_of  # noqa: E402
from ringside_core.readings.cores import usable_cores  # noqa: E402
from ringside_core.readings.process import cores_for, pin  # noqa: E402
from ringside_core.text import byte_size  # noqa: E402

Latencies = dict[int, float]  # microseconds by size in bytes
OSU = {"allreduce": "osu_allreduce", "broadcast": "osu_bcast"}
WARM_UP, LOOPS = 10, 100
LARGE_BYTES, WARM_UP_LARGE, LOOPS_LARGE = 1 << 20, 3, 10


def main() -> None:
    """Run the rounds and print the table."""
    asked = _arguments()
    if asked.as_rank:
        return _as_rank(asked)
    sizes = parse_sizes(asked.sizes, ranks=asked.replicas)
    draw = random.Random(asked.seed)
    ours: list[tuple[Latencies, Latencies]] = []
    theirs: list[Latencies] = []
    for number in range(asked.rounds):
        runs = ["ours", "ours", "theirs"]
        draw.shuffle(runs)
        two: list[Latencies] = []
        for run in runs:
            if run == "ours":
                two.append(_ours(asked, sizes))
            else:
                theirs.append(_theirs(asked, sizes))
        ours.append((two[0], two[1]))
        print(f"round {number + 1} of {asked.rounds}: {', '.join(runs)}", flush=True)
    _print_table(asked, sizes, ours, theirs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Bare MPI by Ringside and by others.")
    parser.add_argument("--operation", choices=tuple(OSU), default="allreduce")
    parser.add_argument("--sizes", default="4KiB-16MiB")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="seed of the order")
    parser.add_argument("--osu", type=Path, help="folder of osu_allreduce and osu_bcast")
    parser.add_argument(
        "--again", action="store_true", help="the reference does not fill its arrays again"
    )
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _ours(asked: argparse.Namespace, sizes: Sequence[int]) -> Latencies:
    """What `ringside allreduce` prints as median: over repetitions, then mean over ranks."""
    with tempfile.TemporaryDirectory() as folder:
        communication = measure_stacks(
            ["mpi"],
            sizes,
            place=Place.here(asked.replicas),
            most=LOOPS,
            budget_s=1.0,
            folder=Path(folder),
            command="",
        )
    (stack,) = communication.stacks
    if not stack.outcome.completed or stack.wrong:
        sys.exit(f"bare MPI: {stack.outcome}, {stack.wrong} wrong elements")
    return {
        timing.size_bytes: 1e6 * times_of(timing).median_s
        for timing in stack.timings
        if timing.operation == asked.operation
    }


def _theirs(asked: argparse.Namespace, sizes: Sequence[int]) -> Latencies:
    """What the reference prints, under the same mpirun."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        site = dataclasses.replace(Site.here(), scratch=str(scratch))
        run_dir = Path(folder) / "run"
        spec, _ = Place.here(asked.replicas).of_stack("mpi")
        (process,) = make_plan(spec, run_dir=run_dir, site=site).processes
        task = site.task_command(run_dir)
        assert process.argv[-len(task) :] == task
        argv = [
            *process.argv[: -len(task)],
            *(sys.executable, str(Path(__file__).resolve()), "--as-rank"),
            *("--operation", asked.operation, "--replicas", str(asked.replicas)),
            *("--sizes", ",".join(f"{size}B" for size in sizes)),
            *(["--osu", str(asked.osu.resolve())] if asked.osu else []),
            *(["--again"] if asked.again else []),
        ]
        done = subprocess.run(
            argv,
            env=environment(os.environ, process, tell="0:0"),
            capture_output=True,
            text=True,
            check=False,
        )
    found = {
        int(match[1]): float(match[2])
        for match in re.finditer(
            r"^\s*(\d+)(?:\s+(?:\d+\.\d+|Pass))*\s+(\d+\.\d+)\s*$", done.stdout, re.MULTILINE
        )
    }
    if done.returncode or not set(sizes) <= set(found):
        sys.exit(f"the reference ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return {size: found[size] for size in sizes}


def _as_rank(asked: argparse.Namespace) -> None:
    """One rank of the reference: pin it as ours are, then run it."""
    cores = usable_cores()
    local_rank = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    share = Place.here(asked.replicas).of_stack("mpi")[0].resources.cores_per_replica
    assert share is not None
    pin(cores_for(local_rank, 1, share, cores))
    sizes = parse_sizes(asked.sizes, ranks=asked.replicas)
    if asked.osu:
        program = str(asked.osu.resolve() / OSU[asked.operation])
        of_sizes = ("-m", f"{min(sizes)}:{max(sizes)}", "-M", str(2 * max(sizes)))
        repeated = ("-x", str(WARM_UP), "-i", str(LOOPS))
        checked = () if asked.again else ("-c", "-u", "1")
        os.execv(program, [program, *of_sizes, *repeated, *checked, "-T", "mpi_float", "-z50"])
    else:
        _plain_loop(asked.operation, sizes, anew=not asked.again)


def _plain_loop(operation: str, sizes: Sequence[int], *, anew: bool) -> None:
    """The loop of osu_allreduce.c and osu_bcast.c, line by line, in mpi4py."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    for size in sizes:
        large = size > LARGE_BYTES
        skip, iterations = (WARM_UP_LARGE, LOOPS_LARGE) if large else (WARM_UP, LOOPS)
        sent = np.ones(size // 4, np.float32)
        received = np.zeros_like(sent)
        comm.Barrier()
        times = []
        for i in range(iterations + skip):
            if anew:
                sent.fill(i if operation == "allreduce" or comm.Get_rank() == 0 else -1)
                received.fill(-1)
                comm.Barrier()
            t_start = MPI.Wtime()
            if operation == "allreduce":
                comm.Allreduce(sent, received, op=MPI.SUM)
            else:
                comm.Bcast(sent, root=0)
            t_stop = MPI.Wtime()
            comm.Barrier()
            right = i * (comm.Get_size() if operation == "allreduce" else 1)
            if anew and np.any((received if operation == "allreduce" else sent) != right):
                raise SystemExit(f"{operation} of {size} bytes is wrong")
            if i >= skip:
                times.append(t_stop - t_start)
        latency = 1e6 * statistics.median(times)
        mean = comm.allreduce(latency, op=MPI.SUM) / comm.Get_size()
        if comm.Get_rank() == 0:
            print(f"{size:-10d}{mean:20.2f}", flush=True)


def _print_table(
    asked: argparse.Namespace,
    sizes: Sequence[int],
    ours: Sequence[tuple[Latencies, Latencies]],
    theirs: Sequence[Latencies],
) -> None:
    name = "OSU (C)" if asked.osu else "plain loop"
    print(f"\n{asked.operation}, {asked.replicas} ranks, {len(theirs)} rounds; µs, medians")
    print(
        f"{'size':>8} {'Ringside':>12} {name:>12} {'ratio':>6} {'its range':>13} "
        f"{'noise floor':>13}  within"
    )
    for size in sizes:
        mine = [(one[size] * other[size]) ** 0.5 for one, other in ours]
        reference = [run[size] for run in theirs]
        ratios = [a / b for a, b in zip(mine, reference, strict=True)]
        # Take the larger ratio: the noise floor has no direction.
        noise = [max(a[size] / b[size], b[size] / a[size]) for a, b in ours]
        ratio, floor = statistics.median(ratios), max(noise)
        print(
            f"{byte_size(size):>8} {statistics.median(mine):12.1f} "
            f"{statistics.median(reference):12.1f} {ratio:6.2f} "
            f"{min(ratios):6.2f}–{max(ratios):<6.2f} {1 / floor:6.2f}–{floor:<6.2f}  "
            f"{'yes' if 1 / floor <= ratio <= floor else 'no'}"
        )


if __name__ == "__main__":
    main()
