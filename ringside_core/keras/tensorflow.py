"""TensorFlow, set up for one version of Keras, and what Ringside uses of its private parts.

A process runs one Keras: legacy Keras (tf-keras) if TF_USE_LEGACY_KERAS is 1, Keras 3 if it is 0.
The variable must be set before TensorFlow is imported (`ringside_core/specs/keras_version.py`).
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from ringside_core.memory import keep_freed_memory
from ringside_core.seeds import SCRIPT_SEED
from ringside_core.specs.keras_version import SWITCH, chosen_version

VERSION = chosen_version(imported="tensorflow" in sys.modules)
os.environ[SWITCH] = "1" if VERSION == 2 else "0"
os.environ["KERAS_BACKEND"] = "tensorflow"
# Remarks on oneDNN, CPU flags and absent GPUs; real failures surface as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_NOISE = (
    b"All log messages before absl::InitializeLog",
    # TensorFlow 2.21 says both at every log level, since they come before it reads the level.
    b" port.cc:",
    b" cudart_stub.cc:",
)


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Pass on what C++ writes to standard error, but for lines that every start on a CPU writes."""
    # They come before TensorFlow's logger can be set; four ranks would write sixteen
    # lines with "E0000" above the first epoch.
    with tempfile.TemporaryFile() as buffer:
        saved = os.dup(2)
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            buffer.seek(0)
            for line in buffer:
                if not any(noise in line for noise in _NOISE):
                    os.write(2, line)


keep_freed_memory()
with _without_noise():
    import tensorflow as tf

    tf.keras.backend  # noqa: B018  # TensorFlow reads the switch when it is first asked for Keras

    from tensorflow.python.eager import context  # private: nothing public says the global seed

# Keras' remarks on slow callbacks and the like; Ringside's own findings are in the records.
tf.get_logger().setLevel("ERROR")

__all__ = ["VERSION", "is_seeded", "tf"]


def is_seeded() -> bool:
    """Whether an author has set TensorFlow's global seed."""
    return context.global_seed() not in (None, SCRIPT_SEED)
