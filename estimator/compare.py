"""Train estimator/train.py alone and by two processes under each stack; compare the weights.

Exit code: 0 all are those of the serial run, 1 some are not, or a run failed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# With it TensorFlow 2.15 asks for a package that is not here.
os.environ.pop("TF_USE_LEGACY_KERAS", None)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # lines about libraries for GPUs, before 3

import numpy as np
from tensorflow import string
from tensorflow.train import latest_checkpoint, load_checkpoint

TRAIN = Path(__file__).with_name("train.py")
LIMIT_S = 300
# The batch is summed in two parts, in another order: 1e-16 a time. 200 updates let it grow.
ALLOWED = 1e-10


def free_ports() -> list[int]:
    """Two ports of this machine that nothing listens on."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


def train(under: str, folder: Path) -> None:
    """Run train.py to its end; its output is in `folder`."""
    command = [sys.executable, str(TRAIN), "--under", under, "--folder", str(folder)]
    commands, tasks = [command], ["{}"]
    if under == "multi_worker_mirrored":
        addresses = [f"127.0.0.1:{port}" for port in free_ports()]
        commands *= 2
        tasks = [
            json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})
            for i in (0, 1)
        ]
    elif under == "horovod":
        horovodrun = Path(sys.executable).with_name("horovodrun")
        commands = [[str(horovodrun), "--gloo", "-np", "2", *command]]

    folder.mkdir()
    started, logs = [], [folder / f"{number}.log" for number in range(len(commands))]
    try:
        for line, task, log in zip(commands, tasks, logs, strict=True):
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CONFIG": task}
            with log.open("w") as output:
                started.append(
                    subprocess.Popen(line, env=environment, stdout=output, stderr=output)
                )
        end = time.monotonic() + LIMIT_S
        codes: list[int | None] = [None]
        while None in codes and not any(codes) and time.monotonic() < end:
            time.sleep(0.1)
            codes = [process.poll() for process in started]
    finally:
        for process in started:
            process.terminate()  # horovodrun then ends its ranks
            process.wait()
    if any(code != 0 for code in codes):
        sys.exit("".join(log.read_text() for log in logs) + f"{under}: exit codes {codes}")


def weights(folder: Path) -> list[dict[str, np.ndarray]]:
    """By name, the variables of each checkpoint: the model's and the optimizer's."""
    found = []
    for checkpoint in sorted(folder.glob("*/checkpoint")):
        reader = load_checkpoint(latest_checkpoint(str(checkpoint.parent)))
        kinds = reader.get_variable_to_dtype_map()  # also of the description of the objects, a text
        found.append({n: reader.get_tensor(n) for n, kind in kinds.items() if kind != string})
    return found


def main() -> None:
    """Print a row for each, and exit 1 if one deviates."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `finally` is reached
    serial: dict[str, np.ndarray] | None = None
    bad = False
    print(f"{'backend':24}{'largest deviation':>20}{'examples/s, one launch':>26}")
    with tempfile.TemporaryDirectory() as temporary:
        for under in ("serial", "multi_worker_mirrored", "horovod"):
            folder = Path(temporary, under)
            train(under, folder)
            found = weights(folder)
            serial = serial or found[0]
            deviations = [
                np.abs(one[name] - serial[name]).max()
                for one in found
                for name in one.keys() | serial.keys()
            ]
            deviation = np.max(deviations)
            bad = bad or not deviation <= ALLOWED  # not-a-number is bad too
            speed = float((folder / "0" / "examples_per_s").read_text())
            print(f"{under:24}{deviation:>20.1e}{speed:>26.0f}", flush=True)
    sys.exit(bad)


if __name__ == "__main__":
    main()
