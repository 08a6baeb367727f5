"""The program of benchmarks/soak.py, which trains slowly as long as a file is there."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from benchmarks.soak import workload as program
from ringside import tf


class Held(tf.keras.callbacks.Callback):
    """A tenth of a second for each update."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """So that a fault comes in the middle, however fast the machine is."""
        if Path(self.file).exists():
            time.sleep(0.1)


def workload(file: str) -> Any:
    """Without dropout: its draws are those of a number of replicas."""
    without = program(slow=False, dropout=0.0)
    return dataclasses.replace(without, callbacks=lambda: [Held(file)])
