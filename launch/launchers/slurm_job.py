"""Submit a batch job of Slurm and wait for its end, or end it; a program of its own.

`slurm_job.py run SCRIPT LOG` is the launcher of a run. `slurm_job.py end NAME` cleans up after it:
it finds jobs by their name, because a launcher that was killed can pass on no job number. Both
use the standard library only.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

# The states that a job does not leave (squeue(1), JOB STATE CODES).
FINAL = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "SPECIAL_EXIT", "TIMEOUT"),
    }
)
# A job that waits for one of these reasons never starts (squeue(1), JOB REASON CODES). By default
# Slurm accepts such jobs.
HOPELESS = frozenset(
    {
        *("BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS"),
        *("PartitionNodeLimit", "PartitionTimeLimit"),
    }
)
# The pause before the next question to Slurm, as a part of the time that has passed: the controller
# serves everybody. `sbatch --wait` would see the end of a job of 20 s after 30 s.
PATIENCE = 0.05
SHORTEST_S = 1.0
LONGEST_S = 30.0
# After SIGKILL the processes end at once; a node that no longer answers takes longer.
END_S = 15.0
POLL_S = 0.2
_TASK = re.compile(r"^srun: error: .*\btasks? .*$", re.MULTILINE)
LAST_WORDS = 3


def run(script: str, log: Path) -> int:
    """Submit, wait, and print in one line why the job ended if it did not complete.

    Returns:
        0 if it completed.
    """
    submitted = _ask("sbatch", "--parsable", script)
    number = submitted.stdout.strip().partition(";")[0]
    if not number:
        complaint = " ".join(submitted.stderr.split())
        print(f"launcher: JobRefused: Slurm did not take the job: {complaint}", flush=True)
        return 1
    print(f"submitted as job {number} of Slurm", flush=True)
    fields = _wait(number)
    state = fields["JobState"]
    if state == "COMPLETED":
        return 0
    if state == "PENDING":
        print(f"launcher: JobNeverStarts: job {number} waits for ever: {fields['Reason']}")
        return 1
    kind = "Job" + state.title().replace("_", "")  # JobOutOfMemory for OUT_OF_MEMORY
    print(f"launcher: {kind}: job {number} ended as {state}{_why(fields, log)}", flush=True)
    return 1


def _wait(number: str) -> dict[str, str]:
    """Wait until a job ends, or can never start; returns the fields that Slurm then has of it."""
    start = time.monotonic()
    printed = ""
    while True:
        asked = _ask("scontrol", "show", "job", "--oneliner", number)
        words = (word.partition("=") for word in asked.stdout.split())
        fields = {name: value for name, equals, value in words if equals}
        if "Invalid job id" in asked.stderr:  # it ended, and Slurm has already forgotten it
            fields = {"JobState": "UNKNOWN"}
        state = fields.get("JobState", "")  # empty: the controller does not answer now
        now = f"job {number} is {state} ({fields.get('Reason')})"
        if state and now != printed:
            print(now, flush=True)
            printed = now
        hopeless = state == "PENDING" and fields.get("Reason") in HOPELESS
        if hopeless or state in FINAL or state == "UNKNOWN":
            return fields
        passed = time.monotonic() - start
        time.sleep(min(max(passed * PATIENCE, SHORTEST_S), LONGEST_S))


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _why(fields: dict[str, str], log: Path) -> str:
    """Slurm's reason, and what srun printed about its tasks."""
    reason = fields.get("Reason", "None")
    limit = f" (limit {fields.get('TimeLimit')})" if "TimeLimit" in reason else ""
    try:
        said = _TASK.findall(log.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        said = []
    first = "" if reason == "None" else f", {reason}{limit}"
    return "; ".join([first, *said[:LAST_WORDS]])


def end(name: str) -> int:
    """Cancel the jobs of this name, and wait until Slurm has ended their last process.

    Returns:
        0 when none is left.
    """
    by_name = ("--quiet", f"--name={name}")
    _ask("scancel", "--signal=KILL", *by_name)  # first the processes, at once
    _ask("scancel", *by_name)
    give_up = time.monotonic() + END_S
    while time.monotonic() < give_up:
        left = _ask("squeue", "--noheader", f"--name={name}", "--format=%i")
        if left.returncode == 0 and not left.stdout.strip():
            return 0
        time.sleep(POLL_S)
    return 1


def main() -> int:
    """Run or end."""
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("script")
    running.add_argument("log", type=Path)
    verbs.add_parser("end").add_argument("name")
    options = parser.parse_args()
    return end(options.name) if options.verb == "end" else run(options.script, options.log)


if __name__ == "__main__":
    sys.exit(main())
