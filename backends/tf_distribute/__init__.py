"""The tf.distribute family."""
