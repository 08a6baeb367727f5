"""One process that times collectives: started in the place of train.py (collectives/task.py)."""

import sys

from collectives.task import work
from launch.task import end_process, run_launched

if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
