"""One Backend interface over tf.distribute and Horovod."""
