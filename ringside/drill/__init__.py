"""A drill: the same faults made in a run of each backend, and what each loses by them."""
