"""One process that times collectives (ringside/collectives/task.py), started like train.py."""

import sys

from launch.task import end_process, run_launched
from ringside.collectives.task import work

if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
