"""Records in, pages out. Nothing here imports TensorFlow."""
