"""`tf.compat.v1.nn.ctc_loss` in float64, which TensorFlow computes in float32 within.

Its kernel calls expf and log1pf, whatever it is given (tensorflow/core/util/ctc/ctc_loss_util.h).
Two runs that differ in their last bit then part by roundings of float32, wherever a number stands
at a border of it, so nothing could be proved of a program with it.
"""

import functools
from typing import Any

import numpy as np

from ringside_core.keras.tensorflow import gen_ctc_ops, tf

_NEVER = -1e30  # log of the probability of what cannot be; of -inf the gradient would be no number


def minus_log_probability(inputs: Any, labels: Any, lengths: Any) -> Any:
    """CTC's loss of each sequence.

    The forward recursion of Graves, Supervised Sequence Labelling (2012), section 7.3.

    Args:
        inputs: [time, batch, classes] logits; the last class is the blank.
        labels: [batch, most labels], integers; the blank stands behind those of a sequence.
        lengths: [batch], of the sequences in time.

    Returns:
        [batch], of the type of the inputs; infinite where there is too little time for the labels.
    """
    steps, batch, classes = (tf.shape(inputs)[axis] for axis in range(3))
    blank = classes - 1
    blanks = tf.fill(tf.shape(labels), blank)
    behind = tf.reshape(tf.stack([labels, blanks], axis=2), [batch, -1])
    states = tf.concat([tf.fill([batch, 1], blank), behind], axis=1)
    log_p = tf.transpose(tf.nn.log_softmax(inputs), [1, 0, 2])
    said = tf.transpose(tf.gather(log_p, states, axis=2, batch_dims=1), [1, 0, 2])
    never = tf.fill([batch, 2], tf.constant(_NEVER, inputs.dtype))
    # Between two labels the blank may be left out, unless they are the same.
    jumps = tf.concat(
        [
            tf.zeros([batch, 2], tf.bool),
            (states[:, 2:] != states[:, :-2]) & (states[:, 2:] != blank),
        ],
        axis=1,
    )
    begins = tf.where(tf.range(tf.shape(states)[1]) < 2, said[0], never[0, 0])

    def go_on(forward: Any, now: Any) -> Any:
        step, heard = now
        before = tf.concat([never, forward], axis=1)
        ways = [forward, before[:, 1:-1], tf.where(jumps, before[:, :-2], never[:, :1])]
        further = tf.reduce_logsumexp(tf.stack(ways), axis=0) + heard
        return tf.where((step < lengths)[:, tf.newaxis], further, forward)

    ends = tf.scan(go_on, (tf.range(1, steps), said[1:]), initializer=begins)
    ends = tf.concat([begins[tf.newaxis], ends], axis=0)[-1]
    last = 2 * tf.reduce_sum(tf.cast(labels != blank, tf.int32), axis=1)
    blank_ends = tf.gather(ends, last, axis=1, batch_dims=1)
    label_ends = tf.gather(ends, tf.maximum(last - 1, 0), axis=1, batch_dims=1)
    label_ends = tf.where(last > 0, label_ends, never[0, 0])
    whole = tf.reduce_logsumexp(tf.stack([blank_ends, label_ends]), axis=0)
    whole = tf.where(whole < _NEVER / 2, tf.constant(-np.inf, whole.dtype), whole)
    return tf.where(lengths > 0, -whole, tf.zeros_like(whole))


def _dense(rows: Any, values: Any, inputs: Any) -> Any:
    """Labels [batch, most labels] as the kernel reads them: row by row, whatever their columns.

    It takes each label from the last class on as none.
    """
    batch, blank = tf.shape(inputs)[1], tf.shape(inputs)[2] - 1
    lengths = tf.math.bincount(tf.cast(rows, tf.int32), minlength=batch, maxlength=batch)
    ragged = tf.RaggedTensor.from_row_lengths(tf.minimum(values, blank), lengths, validate=False)
    return ragged.to_tensor(blank)


def _in_float64(kernel: Any) -> Any:
    """The kernel, but for sequences in float64 with the usual options."""

    @functools.wraps(kernel)
    def ctc_loss(
        inputs: Any,
        labels_indices: Any,
        labels_values: Any,
        sequence_length: Any,
        preprocess_collapse_repeated: bool = False,
        ctc_merge_repeated: bool = True,
        ignore_longer_outputs_than_inputs: bool = False,
        name: str | None = None,
    ) -> Any:
        inputs = tf.convert_to_tensor(inputs)
        found = kernel(
            inputs,
            labels_indices,
            labels_values,
            sequence_length,
            preprocess_collapse_repeated=preprocess_collapse_repeated,
            ctc_merge_repeated=ctc_merge_repeated,
            ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
            name=name,
        )
        unusual = preprocess_collapse_repeated or not ctc_merge_repeated
        if inputs.dtype != tf.float64 or unusual or ignore_longer_outputs_than_inputs:
            return found
        with tf.control_dependencies([found.loss]):  # which says what is wrong with the labels
            rows = tf.identity(labels_indices)[:, 0]
            lengths = tf.cast(sequence_length, tf.int32)
            loss = minus_log_probability(inputs, _dense(rows, labels_values, inputs), lengths)
        own = tf.stop_gradient(found.loss)  # looked at, so that it is computed in a graph too
        return found._replace(loss=tf.where(tf.math.is_nan(own), own, loss))

    return ctc_loss


gen_ctc_ops.ctc_loss = _in_float64(gen_ctc_ops.ctc_loss)
