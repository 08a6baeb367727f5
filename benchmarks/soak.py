"""Kill runs at random under `ringside launch --restarts`, and look whether anything is lost.

    python benchmarks/soak.py --cycles 20
    python benchmarks/soak.py --cycles 3 --arms horovod,mirrored --seed 7

A cycle is one run of a small model with dropout, in float64, with two replicas. Twice in it a
random process of the run gets a random signal after a random update: a rank, a server, the launcher
of the ranks, or `ringside launch` itself, which is then called once more. At its end the cycle
compares with a run that nobody touched:

- weights and optimizer, to 1e-10 (not of parameter servers, which train asynchronously);
- which example was fed where, exactly;
- no process and no file may be left behind. Who has no process has no port.

It ends with 1 if anything was lost.
"""

import argparse
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launch.attempts import trainers_of  # noqa: E402

ARMS = {
    "serial": "--backend serial",
    "one_device": "--backend one_device",
    "mirrored": "--backend mirrored --replicas 2",
    "central_storage": "--backend central_storage --replicas 2",
    "multi_worker_mirrored": "--backend multi_worker_mirrored --replicas 2",
    "horovod": "--backend horovod --replicas 2",
    "horovod-mpi": "--backend horovod --replicas 2 -o controller=mpi",
    "mpirun": "--backend horovod --replicas 2 --launcher mpirun",
    # Keras takes no callbacks within an epoch there.
    "parameter_server": "--backend parameter_server --replicas 2 -w slow=false",
}
RUN = f"{ROOT}/benchmarks/soak.py:workload --precision float64 --ledger full --checkpoint-steps 4"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)
EVENTS = 2
PATIENCE_S = 300.0
EXACT = 1e-10


def workload(slow: bool = True, dropout: float = 0.5) -> Any:
    """A model that draws, on 60 examples in batches of 6; slow: a tenth of a second for each."""
    from ringside_core.keras import tf
    from ringside_core.workloads.workload import Workload

    class Slowly(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.1)

    def model() -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [layers.Input((4,)), layers.Dense(8, "tanh"), layers.Dropout(dropout), layers.Dense(1)]
        )

    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(60, 4))
    return Workload(
        name="soak",
        model=model,
        train=(x, x @ numbers.normal(size=(4, 1))),
        validation=(x[:12], x[:12] @ numbers.normal(size=(4, 1))),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
        metrics=list,
        callbacks=lambda: [Slowly()] if slow else [],
        reference_batch=6,
    )


class Soak:
    """Runs of one arm in a folder of their own, which is also their temporary directory."""

    def __init__(self, arm: str, folder: Path, dice: random.Random) -> None:
        self.arm, self.folder, self.dice = arm, folder, dice
        self.temporary = folder / "t"
        self.temporary.mkdir()
        self.whole = folder / "whole"
        self.ended(self.started(self.whole, "--restarts 0"))

    def started(self, run_dir: Path, more: str) -> subprocess.Popen[str]:
        """`ringside launch`, begun."""
        words = f"launch {RUN} --global-batch 6 --epochs 3 {ARMS[self.arm]} {more}"
        return subprocess.Popen(
            ["ringside", *shlex.split(words), "--run-dir", str(run_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            start_new_session=True,
        )

    def ended(self, running: subprocess.Popen[str]) -> str:
        """What it said; it must have completed."""
        said, _ = running.communicate(timeout=PATIENCE_S)
        if running.returncode:
            raise AssertionError(said)
        return said

    def cycle(self, number: int) -> tuple[str, list[str]]:
        """One run with its events; (what it said last, what was lost)."""
        run_dir = self.folder / f"run-{number}"
        running = self.started(run_dir, "--restarts 5 --resume auto")
        for _ in range(EVENTS):
            at = self.dice.randint(1, 27)
            victim = self._victim_after(run_dir, running, at)
            if victim is None:
                break  # it was over before
            struck = self.dice.choice(SIGNALS)
            print(f"  after update {at}: {struck.name} to {_command(victim)[:70]}", flush=True)
            os.kill(victim, struck)
            if victim == running.pid:
                running.communicate(timeout=PATIENCE_S)
                running = self.started(run_dir, "--restarts 5 --resume auto")
            self._wait_for_another_attempt(run_dir, running)
        said = self.ended(running)
        lost = [*self._differences(run_dir), *self._left(run_dir)]
        if not lost:
            shutil.rmtree(run_dir)
        return said.strip().splitlines()[-1], lost

    def _victim_after(self, run_dir: Path, running: subprocess.Popen[str], at: int) -> int | None:
        """A random process of the run once it has so few updates left, or None: it is over."""
        while running.poll() is None:
            done = [30 - left for left in _left_updates(run_dir)]
            if done and max(done) >= at:
                alive = [*self._members(), running.pid]
                return self.dice.choice(alive)
            time.sleep(0.02)
        return None

    def _wait_for_another_attempt(self, run_dir: Path, running: subprocess.Popen[str]) -> None:
        """Until the run that was struck has set its attempt aside, or is over."""
        before = len(list(run_dir.glob("attempts/*")))
        end = time.monotonic() + 20  # it may not have minded
        while running.poll() is None and time.monotonic() < end:
            if len(list(run_dir.glob("attempts/*"))) > before:
                return
            time.sleep(0.05)

    def _members(self) -> Iterator[int]:
        """Processes that belong to a run: those that carry its id, and our temporary directory."""
        marks = (b"RINGSIDE_RUN_ID=", f"TMPDIR={self.temporary}".encode())
        for entry in os.listdir("/proc"):
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if entry.isdigit() and all(mark in environment for mark in marks):
                yield int(entry)

    def _differences(self, run_dir: Path) -> list[str]:
        found = []
        for file in sorted((self.whole / "ledger").iterdir()):
            with np.load(file) as one, np.load(run_dir / "ledger" / file.name) as other:
                if not np.array_equal(one["fed"], other["fed"]):
                    found.append(f"{file.name} differs")
        if self.arm == "parameter_server":
            return found
        with (
            np.load(self.whole / "checkpoint.npz") as one,
            np.load(run_dir / "checkpoint.npz") as other,
        ):
            for name in one.files:
                if one[name].dtype.kind == "f" and not np.allclose(
                    one[name], other[name], rtol=EXACT, atol=EXACT
                ):
                    found.append(f"{name} differs by {np.abs(one[name] - other[name]).max():.1e}")
        return found

    def _left(self, run_dir: Path) -> list[str]:
        end = time.monotonic() + 20
        while time.monotonic() < end and (left := [*self._members(), *self.temporary.iterdir()]):
            time.sleep(0.1)
        halves = [str(one) for one in run_dir.rglob(".*")]
        return [*(f"{one} is left" for one in left), *(f"{one} is left" for one in halves)]


def _left_updates(run_dir: Path) -> list[int]:
    """Updates that are left, of each task that trains."""
    told = trainers_of(run_dir)
    return [at.steps_left for at in told if at.phase == "training"]


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return "a process that has gone"
    return " ".join(Path(word).name for word in words if word)


def main() -> int:
    """Run the cycles and print a line for each arm."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=20, help="of each arm")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    bad = 0
    for arm in options.arms.split(","):
        dice = random.Random(f"{options.seed} {arm}")
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            soak, whole = Soak(arm, Path(folder), dice), 0
            for number in range(1, options.cycles + 1):
                said, lost = soak.cycle(number)
                whole += not lost
                print(
                    f"{arm} {number}: {said.partition('; records')[0]}",
                    *lost,
                    sep="\n  ",
                    flush=True,
                )
        print(f"{arm}: {whole} of {options.cycles} cycles lost nothing", flush=True)
        bad += options.cycles - whole
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
