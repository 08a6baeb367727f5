"""Train programs of the catalogue, one after the other in this process, and keep what each tells.

    python tests/programs/run.py FOLDER short_batch_as_full unseeded_shuffle …

A program NAME leaves FOLDER/NAME.RANK.npz: its `results`, nested as `weights/0`; or its error. By
rows, FOLDER/NAME.RANK.ledger says which rows were trained.
One that takes longer than a minute and a half ends the process, so that those that wait go on.
"""

import faulthandler
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

CATALOGUE = Path(__file__).parent / "catalogue"
MOST_S = 90


def rank() -> int:
    """Number of this process in its launcher's words; 0 alone."""
    env = os.environ
    task = json.loads(env.get("TF_CONFIG", "{}")).get("task", {})
    return int(env.get("HOROVOD_RANK", env.get("OMPI_COMM_WORLD_RANK", task.get("index", 0))))


def flat(results: Any, name: str = "") -> dict[str, np.ndarray]:
    """Arrays of nested dicts and lists, by their path."""
    if isinstance(results, dict):
        parts = {str(key): value for key, value in results.items()}
    elif isinstance(results, list) and any(np.ndim(value) for value in results):
        parts = {str(number): value for number, value in enumerate(results)}
    else:
        return {name: np.asarray(results)}
    return {
        path: array
        for key, value in parts.items()
        for path, array in flat(value, f"{name}/{key}" if name else key).items()
    }


def train(name: str) -> dict[str, np.ndarray]:
    """What a program tells, or its error."""
    try:
        return flat(runpy.run_path(str(CATALOGUE / f"{name}.py"), run_name="__main__")["results"])
    except Exception as error:
        traceback.print_exc()
        return {"error": np.array([type(error).__name__, str(error)])}


def main() -> None:
    """Train those that are named, in float64."""
    folder, *names = sys.argv[1:]
    tf.keras.backend.set_floatx("float64")
    for number, name in enumerate(names):
        if number:  # not before a backend has started
            tf.keras.backend.clear_session()
        print(name, flush=True)
        faulthandler.dump_traceback_later(MOST_S, exit=True)
        found = train(name)
        faulthandler.cancel_dump_traceback_later()
        if hasattr(sys.modules.get("ringside"), "ledger"):
            rows = json.dumps(sys.modules["ringside"].ledger())  # also of one that was refused
            if "error" not in found:
                (Path(folder) / f"{name}.{rank()}.ledger").write_text(rows)
        np.savez(Path(folder) / f"{name}.{rank()}.npz", **found)


if __name__ == "__main__":
    main()
