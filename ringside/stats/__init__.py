"""Clocks, machine facts and figures. Nothing here imports TensorFlow."""
