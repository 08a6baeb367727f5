"""What the stacks' own recovery does with the data, beside Ringside's.

    python benchmarks/stack_recovery.py

A plain program of legacy Keras, without Ringside, trains 64 examples for two epochs of 8 updates,
in float64 and in the order of a seeded shuffle. After update 6 of the second epoch one worker gets
SIGKILL. Then the stack goes on as its own guide says:

- MultiWorkerMirrored with `BackupAndRestore`, which saves at each epoch or after each 4 updates:
  both workers are started again.
- ParameterServer: the dead worker alone is started again, and the coordinator gives it work.

Last, `ringside drill` kills a rank of the same training under the same backends, and Ringside
starts all processes again.

An update counts if the weights at the end rest on it: what came after the last backup does not.
The table says how many examples were fed less or more often than once in an epoch, and how far
the weights are from those of a run that nobody touched.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

EXAMPLES, BATCH, EPOCHS, WORKERS = 64, 8, 2, 2
UPDATES = EXAMPLES // BATCH
STRUCK = UPDATES + 6  # after this update
LIMIT_S = 180.0


def data() -> tuple[Any, Any]:
    """Inputs [64, 4] and what is to be learned [64, 1]."""
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(EXAMPLES, 4))
    return x, np.tanh(x @ numbers.normal(size=(4, 1)))


def workload() -> Any:
    """The same training for Ringside."""
    from ringside_core.keras import tf
    from ringside_core.workloads.workload import Workload

    def model() -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential([layers.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1)])

    return Workload(
        name="recovery",
        model=model,
        train=data(),
        validation=data(),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=lambda: tf.keras.optimizers.Adam(0.02),
    )


# One process of the plain program


def plain(folder: Path, save_freq: str, struck: int) -> None:
    """One task of the TF_CONFIG: it trains or serves; `struck`: the update after which it dies."""
    import tensorflow as tf

    tf.keras.backend.set_floatx("float64")
    tf.keras.utils.set_random_seed(1)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if "ps" not in resolver.cluster_spec().jobs:
        _fit(tf, resolver, folder, save_freq, struck)
    elif resolver.task_type == "chief":
        _coordinate(tf, resolver, folder, struck)
    else:
        place = resolver.cluster_spec(), resolver.task_type, resolver.task_id
        tf.distribute.Server(*place, protocol="grpc").join()


def _examples(tf: Any) -> Any:
    """(x, y, id) in the order of a seeded shuffle."""
    rows = tf.data.Dataset.from_tensor_slices((*data(), np.arange(EXAMPLES)))
    return rows.shuffle(EXAMPLES, seed=1)


def _fit(tf: Any, resolver: Any, folder: Path, save_freq: str, struck: int) -> None:
    """MultiWorkerMirrored and BackupAndRestore. Each line of a file: the update, and its ids."""
    told = f"file://{folder}/fed-{resolver.task_id}-{os.getpid()}"

    class Telling(tf.keras.Sequential):
        def train_step(self, fed: Any) -> Any:
            x, y, ids = fed
            tf.print(self.optimizer.iterations, ids, output_stream=told, summarize=-1)
            return super().train_step((x, y))

    class Struck(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.model.optimizer.iterations.numpy() == struck and resolver.task_id == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    layers, freq = tf.keras.layers, save_freq if save_freq == "epoch" else int(save_freq)
    with tf.distribute.MultiWorkerMirroredStrategy(resolver).scope():
        model = Telling([layers.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1)])
        model.compile(tf.keras.optimizers.Adam(0.02), "mse")
    backup = tf.keras.callbacks.BackupAndRestore(str(folder / "backup"), save_freq=freq)
    batches = _examples(tf).batch(BATCH)
    model.fit(batches, epochs=EPOCHS, verbose=0, callbacks=[backup, Struck()])
    if resolver.task_id == 0:
        np.savez(folder / "weights.npz", *model.get_weights())


def _coordinate(tf: Any, resolver: Any, folder: Path, struck: int) -> None:
    """ParameterServer: a loop after TensorFlow's guide; each step gives its ids back."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        weights = tf.Variable(np.zeros((4, 1)))

    @tf.function
    def step(iterator: Any) -> Any:
        def one(fed: Any) -> Any:
            x, y, ids = fed
            weights.assign_sub(0.02 * tf.matmul(x, tf.matmul(x, weights) - y, transpose_a=True))
            return ids

        return strategy.run(one, args=(next(iterator),))

    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    batches = coordinator.create_per_worker_dataset(lambda: _examples(tf).batch(BATCH).repeat())
    iterator, done = iter(batches), 0
    with (folder / "fed-0-0").open("w") as file:
        while done < EPOCHS * UPDATES:
            if done == struck:  # wait until a worker was killed and started again
                (folder / "struck").touch()
                _until(lambda: not (folder / "struck").exists())
            given = [coordinator.schedule(step, args=(iterator,)) for _ in range(WORKERS)]
            coordinator.join()
            for one in given:
                print(done, one.fetch(), file=file)
                done += 1


# Who starts them


def _until(true: Any) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened for {LIMIT_S:g} s")
        time.sleep(0.05)


class Cluster:
    """The tasks of a TF_CONFIG as processes on this machine."""

    def __init__(self, folder: Path, save_freq: str, struck: int, **tasks: int) -> None:
        self._addresses = {name: [_address() for _ in range(n)] for name, n in tasks.items()}
        self._words = (str(folder), save_freq)
        self._struck = struck
        self._folder = folder
        self.running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}

    def start(self, *tasks: tuple[str, int], struck: bool) -> None:
        """Start tasks; `struck`: whether one of them dies."""
        for name, index in tasks:
            place = {"cluster": self._addresses, "task": {"type": name, "index": index}}
            env = {
                **os.environ,
                "TF_CONFIG": json.dumps(place),
                "TF_USE_LEGACY_KERAS": "1",
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "-1",
            }
            words = (*self._words, str(self._struck if struck else -1))
            with (self._folder / f"log-{name}-{index}").open("ab") as log:
                self.running[name, index] = subprocess.Popen(
                    [sys.executable, __file__, "--task", *words], env=env, stdout=log, stderr=log
                )

    def end(self) -> None:
        """Kill what still runs."""
        for one in self.running.values():
            one.kill()
            one.wait()

    def wait(self, *task: Any) -> int:
        """The exit code of a task, once it has ended."""
        return self.running[task].wait(LIMIT_S)


def _address() -> str:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return f"localhost:{one.getsockname()[1]}"


def run_fit(folder: Path, save_freq: str, *, struck: bool) -> Path:
    """MultiWorkerMirrored in a folder, with or without a worker that is killed."""
    folder.mkdir()
    both = [("worker", index) for index in range(WORKERS)]
    cluster = Cluster(folder, save_freq, STRUCK, worker=WORKERS)
    try:
        cluster.start(*both, struck=struck)
        if struck:
            assert cluster.wait("worker", 1) == -signal.SIGKILL
            cluster.end()
            cluster.start(*both, struck=False)
        assert [cluster.wait(*task) for task in both] == [0, 0], f"see {folder}"
    finally:
        cluster.end()
    return folder


def run_servers(folder: Path, *, struck: bool) -> Path:
    """ParameterServer in a folder, with or without a worker that is killed and started again."""
    folder.mkdir()
    cluster = Cluster(folder, "-", STRUCK, chief=1, worker=WORKERS, ps=1)
    try:
        cluster.start(("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0), struck=struck)
        if struck:
            _until((folder / "struck").exists)
            cluster.running["worker", 1].kill()
            cluster.wait("worker", 1)
            cluster.start(("worker", 1), struck=False)
            (folder / "struck").unlink()
        assert cluster.wait("chief", 0) == 0, f"see {folder}"
    finally:
        cluster.end()
    return folder


# What is left


def fed(folder: Path) -> list[Counter[int]]:
    """How often each example was fed in each epoch, in the updates that count."""
    counts = [Counter(range(EXAMPLES)) for _ in range(EPOCHS)]
    for epoch in counts:
        epoch.subtract(range(EXAMPLES))
    attempts: dict[str, list[list[tuple[int, list[int]]]]] = {}
    for file in sorted(folder.glob("fed-*"), key=lambda one: one.stat().st_mtime_ns):
        lines = []
        for line in file.read_text().splitlines():
            update, *ids = map(int, line.replace("[", " ").replace("]", " ").split())
            lines.append((update, ids))
        attempts.setdefault(file.name.split("-")[1], []).append(lines)
    for of_worker in attempts.values():
        for lines, later in zip(of_worker, [*of_worker[1:], []], strict=True):
            restored = min((update for update, _ in later), default=EPOCHS * UPDATES)
            for update, ids in lines:
                if update < restored:
                    counts[update // UPDATES].update(ids)
    return counts


def row(name: str, counts: list[Counter[int]], deviation: str) -> str:
    """A line of the table."""
    again = sum(number > 1 for epoch in counts for number in epoch.values())
    never = sum(number < 1 for epoch in counts for number in epoch.values())
    return f"| {name} | {again} | {never} | {deviation} |"


def deviation(one: Path, other: Path) -> str:
    """The largest difference of two runs' weights, of the largest of its array."""
    with np.load(one / "weights.npz") as a, np.load(other / "weights.npz") as b:
        found = max(float(np.abs(a[n] - b[n]).max() / np.abs(b[n]).max()) for n in b.files)
    return f"{found:.1e}"


def run_drill(folder: Path) -> list[str]:
    """The rows of Ringside's own recovery from a killed rank."""
    words = (
        f"drill --workload {__file__}:workload --faults rank-killed --global-batch {BATCH} "
        f"--epochs {EPOCHS} --backends multi_worker_mirrored,parameter_server "
        f"--output {folder} --name drill"
    )
    done = subprocess.run(
        [sys.executable, "-m", "ringside.cli.main", *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    drill = json.loads((folder / "drill" / "drill.json").read_text())
    rows = []
    for cell in drill["cells"]:
        name = f"Ringside, {cell['arm']}, killed after {drill['struck_after'][cell['arm']]}"
        off = f"{cell['deviation']:.1e}" if cell["exact"] else "–"
        rows.append(f"| {name} | {cell['repeated']} | {cell['missed']} | {off} |")
    return rows


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.task:
        plain(Path(asked.task[0]), asked.task[1], int(asked.task[2]))
        return 0
    with tempfile.TemporaryDirectory(prefix="recovery-") as made:
        folder = Path(made)
        head = f"worker killed after update {STRUCK} of {EPOCHS * UPDATES}"
        print(f"| {head} | fed again | never fed | weights off by |\n|---|---|---|---|")
        for freq in ("epoch", "4"):
            whole = run_fit(folder / f"whole-{freq}", freq, struck=False)
            broken = run_fit(folder / f"broken-{freq}", freq, struck=True)
            name = f"MultiWorkerMirrored, BackupAndRestore(save_freq={freq})"
            print(row(name, fed(broken), deviation(broken, whole)), flush=True)
        for struck, name in ((False, "nobody killed"), (True, "worker started again")):
            made_in = run_servers(folder / f"servers-{struck}", struck=struck)
            print(row(f"ParameterServer, {name}", fed(made_in), "–"), flush=True)
        print(*run_drill(folder), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
