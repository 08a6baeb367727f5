"""What is read from a machine. Nothing here imports TensorFlow."""
