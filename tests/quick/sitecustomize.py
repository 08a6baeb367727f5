"""Every Python with this folder in PYTHONPATH reads it, and starts quicker for it.

horovodrun takes itself as built: it would else import TensorFlow at each start, to find out. And
`ringside` starts its tasks with another Python if it is given one: with forks of warm.py.
"""

import os
import sys

if python := os.environ.get("RINGSIDE_TESTS_PYTHON"):
    sys.executable = python

if any(word.rpartition("/")[2] == "horovodrun" for word in sys.orig_argv[:3]):
    from horovod.runner import launch

    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
