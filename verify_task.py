"""One process that verifies: what a launcher starts in the place of train.py (verify/task.py)."""

import sys

from launch.task import end_process, run_launched
from verify.task import work

if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
