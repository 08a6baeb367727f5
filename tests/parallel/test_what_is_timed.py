"""What stands between the two readings of the clock, seen in one process: nothing is launched."""

import numpy as np

from ringside.collectives.tensorflow_ranks import finished
from ringside_core.keras import tf


def test_a_result_is_waited_for_and_not_copied() -> None:
    """What is checked is the tensor's own memory; its copy would cost a part of the operation."""
    tensor = tf.function(lambda x: x + x)(tf.constant([1.0, 2.0]))

    (result,) = finished([tensor], on_gpu=False)

    assert result.tolist() == [2.0, 4.0]
    assert np.shares_memory(result, np.asarray(memoryview(tensor)))
