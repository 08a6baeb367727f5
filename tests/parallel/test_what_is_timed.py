"""What stands between the two readings of the clock, seen in one process: nothing is launched."""

from typing import Any

import numpy as np

from ringside.collectives.push_pull import _PushPull
from ringside.collectives.tensorflow_ranks import finished
from ringside_core.keras import tf


def test_a_result_is_waited_for_and_not_copied() -> None:
    """What is checked is the tensor's own memory; its copy would cost a part of the operation."""
    tensor = tf.function(lambda x: x + x)(tf.constant([1.0, 2.0]))

    (result,) = finished([tensor], on_gpu=False)

    assert result.tolist() == [2.0, 4.0]
    assert np.shares_memory(result, np.asarray(memoryview(tensor)))


def test_the_push_waits_for_the_pull() -> None:
    """What is added is a copy that is made after the read, the only thing that could be sent."""
    sender: Any = object.__new__(_PushPull)
    sender._count, sender._workers = 8, 2
    sender._variable = tf.Variable(tf.zeros([8]))

    traced = tf.function(sender._on_worker).get_concrete_function(tf.constant(0), tf.constant(1))

    (add,) = (op for op in traced.graph.get_operations() if op.type == "AssignAddVariableOp")
    sent = add.inputs[1].op
    assert sent.type == "Identity"
    assert "ReadVariableOp" in {op.type for op in ancestors(sent.control_inputs)}
    assert "ReadVariableOp" not in {op.type for op in ancestors([sent.inputs[0].op])}


def ancestors(ops: Any) -> set[Any]:
    """The operations that these need, with themselves."""
    found: set[Any] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [one.op for one in op.inputs]
    return found
