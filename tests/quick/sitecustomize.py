"""Every Python with this folder in PYTHONPATH reads it: horovodrun takes itself as built.

It would else import TensorFlow at each start, to find out. All the rest is its own.
"""

import sys

if any(word.rpartition("/")[2] == "horovodrun" for word in sys.orig_argv[:3]):
    from horovod.runner import launch

    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
