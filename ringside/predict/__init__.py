"""Step times at sizes and links that were not measured. Nothing here imports TensorFlow."""
