"""What became of a run: one outcome from its records, exits and output."""

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.children import Child
from launch.journal import finish, record_file
from launch.logs import last_lines, log_file, tail_text
from launch.plan import LAUNCHER_NAME, Plan
from launch.watch import SERVING, Progress
from ringside_core.specs import Outcome, RefusalError, RunRecord

LINES_IN_REASON = 3

# Errors of communication: a task reports them if another one died. Known by class name …
ECHO_CLASSES = frozenset(
    {
        *("AbortedError", "CancelledError", "CoordinatorLostError", "DeadlineExceededError"),
        *("HorovodInternalError", "KeyboardInterrupt", "SystemExit", "UnavailableError"),
    }
)
# … or by message, if a class says too little (UnknownError, InternalError).
ECHO_TEXT = re.compile(
    r"Horovod(All|Broadcast|Internal|Reducescatter)|Connection (closed|reset|refused)|Broken pipe"
    r"|[Cc]oordination service|Socket closed|gloo/|collective.*(abort|cancel)"
)

# How horovodrun and mpirun name the rank that ended first: (rank, exit code) or (rank, signal).
EXITS = (  # how the code counts: minus a signal
    (re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>-?\d+)", re.MULTILINE), 1),
    (re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"), 1),
    (re.compile(r"process rank (?P<rank>\d+) with PID .* exited on signal (?P<code>\d+)"), -1),
)
# How our own launchers report the end of their job: error class and reason.
STATED = re.compile(r"^launcher: (?P<kind>[A-Z]\w+): (?P<reason>.+)$", re.MULTILINE)


@dataclass
class Evidence:
    """What execute() saw of a run."""

    exits: list[Child] = field(default_factory=list)  # that ended by themselves, in order
    progress: dict[str, Progress] = field(default_factory=dict)  # the last of each task
    still: Sequence[Progress] = ()  # tasks that stood still; the run is hung if there are any
    still_s: float = 0.0
    survivors: Sequence[str] = ()  # that could not be killed: process ids here, hosts elsewhere
    lost: Sequence[str] = ()  # hosts that no longer answer


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run, and the task whose output explains it (empty: none)."""

    outcome: Outcome
    task: str = ""


class Records:
    """The records of a run, read as they appear."""

    def __init__(self, plan: Plan) -> None:
        self._run_id, self._run_dir = plan.run_id, Path(plan.run_dir)
        self._files = {task: record_file(self._run_dir, task) for task in plan.expects}
        self.read: dict[str, RunRecord] = {}
        self.unreadable: dict[str, str] = {}
        self._written: dict[str, int] = {}

    def look(self) -> None:
        """Read the records that are new."""
        try:
            there = set(os.listdir(self._run_dir / "records"))  # one question, not one for each
        except OSError:
            return
        for task in self.missing():
            file = self._files[task]
            if file.name not in there:
                continue
            try:
                self._written[task] = file.stat().st_mtime_ns
                text = file.read_text(encoding="utf-8")
                record = RunRecord.from_json(text, origin=file.name)
            except (RefusalError, OSError, UnicodeDecodeError) as error:
                self.unreadable[task] = str(error)
                continue
            if record.run_id == self._run_id:
                self.read[task] = record
            else:
                self.unreadable[task] = f"it is of another run ({record.run_id or 'by hand'})"

    def completed(self) -> set[str]:
        """The tasks that have recorded that they completed."""
        return {task for task, record in self.read.items() if record.outcome.completed}

    def all_completed(self) -> bool:
        """Whether every task has."""
        return self.completed() == set(self._files)

    def missing(self) -> list[str]:
        """Tasks without a record."""
        return [t for t in self._files if t not in self.read and t not in self.unreadable]

    def finish(self) -> tuple[RunRecord, ...]:
        """All records, also of tasks that ended before they wrote one but had ended an epoch."""
        found = (
            finish(self._run_dir, task, self._run_id, self.read.get(task)) for task in self._files
        )
        return tuple(record for record in found if record is not None)

    def bad(self) -> list[RunRecord]:
        """The records of tasks that did not complete, in the order in which they were written."""
        tasks = sorted(self.read.keys() - self.completed(), key=self._written.__getitem__)
        return [self.read[task] for task in tasks]


def judge(plan: Plan, records: Records, evidence: Evidence) -> Verdict:
    """Name the cause. A user's error counts before a death, a death before its peers' errors."""
    if evidence.lost and not records.all_completed():
        return _failed(
            f"{', '.join(evidence.lost)}: no answer any more. Look at the network to it and "
            "whether it is up; what ran there ends itself within 20 s",
            "HostLost",
        )
    if evidence.still:
        return _hung(evidence)
    if records.all_completed():
        if evidence.survivors:
            left = ", ".join(evidence.survivors)
            return _failed(f"processes cannot be killed: {left}", "Survivors")
        return Verdict(Outcome(kind="completed"))
    bad = records.bad()
    for record in bad:
        if not _is_echo(record.outcome):
            return _recorded(record)
    if (death := _death(plan, records, evidence)) is not None:
        return death
    if bad:
        return _recorded(bad[0])
    if records.unreadable:
        task, why = next(iter(records.unreadable.items()))
        return _failed(f"the record of {task} cannot be read: {why}", "NoRecord", task)
    missing = records.missing()
    return _failed(f"ended without a record: {', '.join(missing)}", "NoRecord", missing[0])


def _hung(evidence: Evidence) -> Verdict:
    phases = {progress.phase for progress in evidence.still}
    where = "; ".join(map(str, evidence.still))
    if phases <= {"finished", "serving"}:
        where += "; the processes do not end"
    outcome = Outcome(
        kind="hung",
        after_s=evidence.still_s,
        reason=f"no progress for {evidence.still_s:g} s: {where}",
    )
    return Verdict(outcome, evidence.still[0].task)


def _failed(reason: str, error_class: str, task: str = "") -> Verdict:
    return Verdict(Outcome(kind="failed", reason=reason, error_class=error_class), task)


def _recorded(record: RunRecord) -> Verdict:
    outcome = record.outcome
    return Verdict(outcome.replace(reason=f"{record.task}: {outcome.reason}"), record.task)


def _is_echo(outcome: Outcome) -> bool:
    return outcome.kind == "failed" and (
        outcome.error_class in ECHO_CLASSES or ECHO_TEXT.search(outcome.reason) is not None
    )


def _death(plan: Plan, records: Records, evidence: Evidence) -> Verdict | None:
    """The first process that ended without leaving a record of its own."""
    for child in evidence.exits:
        name = child.process.name
        if name == LAUNCHER_NAME:
            if (verdict := _launcher_death(plan, records, evidence, child)) is not None:
                return verdict
        elif name in records.missing():
            return _died(plan, evidence, name, child.returncode or 0)
    return None


def _launcher_death(
    plan: Plan, records: Records, evidence: Evidence, child: Child
) -> Verdict | None:
    """The rank that a failed launcher blames, or the launcher itself; None: a record says more."""
    code = child.returncode or 0
    if code == 0:
        return None
    said = tail_text(log_file(Path(plan.run_dir), LAUNCHER_NAME)) if code > 0 else ""
    if (stated := STATED.search(said)) is not None:
        return _failed(stated["reason"], stated["kind"], LAUNCHER_NAME)
    blamed = _blamed(said)
    for rank, how in blamed:
        if rank in records.missing():
            return _died(plan, evidence, rank, how)
    if any(rank in records.read.keys() - records.completed() for rank, _ in blamed):
        return None
    return _died(plan, evidence, LAUNCHER_NAME, code, shown_as=Path(child.process.argv[0]).name)


def _blamed(text: str) -> list[tuple[str, int]]:
    """Ranks and how they ended, from a launcher's output; the first to end comes first."""
    found = [
        (match.start(), f"rank-{match['rank']}", sign * int(match["code"]))
        for pattern, sign in EXITS
        for match in pattern.finditer(text)
    ]
    # A shell reports a death by signal S as 128 + S. 255 comes from ssh, without a real code.
    found = [(at, rank, 128 - code if 128 < code < 255 else code) for at, rank, code in found]
    # A launcher probably ended a rank that SIGTERM ended, because of another rank.
    found.sort(key=lambda item: (item[2] == -signal.SIGTERM, item[0]))
    return [(rank, how) for _, rank, how in found]


def _died(plan: Plan, evidence: Evidence, name: str, code: int, *, shown_as: str = "") -> Verdict:
    """The outcome of a run in which a process died, with an exit code or by minus a signal."""
    names = {-number: f"was killed by {number.name}" for number in signal.Signals}
    unnamed = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
    at = evidence.progress.get(name)
    step = max((p.step for p in evidence.progress.values()), default=0) if at is None else at.step
    if at is not None and at.phase == SERVING:
        when = "while it served"
    else:
        when = f"after step {step}" if step else "before the first step"
    silently = ", without a record" if code >= 0 and not shown_as else ""
    lines = last_lines(Path(plan.run_dir), name, LINES_IN_REASON)
    said = f"; last lines: {' | '.join(lines)}" if lines else ""
    how = names.get(code, unnamed)
    return _failed(f"{shown_as or name} {how} {when}{silently}{said}", "ProcessDied", name)
