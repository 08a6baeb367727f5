"""One process that verifies (ringside/verify/task.py), started like train.py."""

import sys

from launch.task import end_process, run_launched
from ringside.verify.task import work

if __name__ == "__main__":
    end_process(run_launched(work, sys.argv[1:]))
