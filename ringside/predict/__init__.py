"""Steps at sizes and links that nobody has at hand. Nothing here imports TensorFlow."""
