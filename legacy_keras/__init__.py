"""The one place that decides which Keras and which TensorFlow everything runs on.

Every arm trains with legacy Keras (tf-keras), because it is the only Keras under which all
strategies and Horovod work: with Keras 3, `fit` fails under MultiWorkerMirroredStrategy
(keras#20585) and ParameterServerStrategy (keras#18624), and Horovod's optimizer fails with
"'Variable' object has no attribute 'ref'" (horovod#4290).

Horovod's Keras modules say `from keras import backend`, which would take Keras 3 from beside
TensorFlow; so `keras` names tf_keras before Horovod is imported (workaround in horovod#4290).

Import TensorFlow through here: `from legacy_keras import tf`.
"""

import os
import sys

if "tensorflow" in sys.modules and os.environ.get("TF_USE_LEGACY_KERAS") != "1":
    raise ImportError(
        "TensorFlow was imported before Ringside, with Keras 3. Import legacy_keras "
        "first, or set TF_USE_LEGACY_KERAS=1."
    )
os.environ["TF_USE_LEGACY_KERAS"] = "1"
# INFO, WARNING and the "Unable to register cuBLAS" ERROR of every CPU start; real failures
# surface as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # must come after the environment is set
import tf_keras

sys.modules["keras"] = tf_keras
# Keras' remarks on slow callbacks and the like; Ringside's own findings are in the records.
tf.get_logger().setLevel("ERROR")

__all__ = ["tf"]
