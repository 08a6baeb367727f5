"""Step times at sizes that were not measured. Nothing here imports TensorFlow."""
