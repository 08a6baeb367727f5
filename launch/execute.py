"""Run a plan: start its processes, watch them, end every one, and say what became of the run."""

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from launch.children import Child, Children, environment
from launch.claim import FOLDERS, SPEC, claimed, remove, to_be_made, written
from launch.interrupts import Interrupts
from launch.logs import Follower, LogLimit, last_lines
from launch.outcome import Evidence, Records, judge
from launch.plan import LAUNCHER_NAME, Plan
from launch.remote import host_facts, ssh, sweep
from launch.remote.host_facts import interfaces
from launch.remote.keepers import Keepers
from launch.turns import Turns
from launch.watch import SAVES, SERVING, Progress, Watch
from ringside_core.readings.machine import boot_id
from ringside_core.specs import Execution, Outcome, write_whole

POLL_S = 0.1
LOOKING = 0.05  # the part of its time in which the launcher may read progress
RESTING_POLL_S = 2.0  # nothing moves but a process that dies, and that wakes us
# Time for the other tasks to notice that one failed, and to write their records.
REPORT_GRACE_S = 5.0
# Time for servers to end, once all that they served are gone.
SERVER_GRACE_S = 10.0
LAST_LINES = 20
# Time for a host to answer: ssh must connect (10 s, see ssh.OPTIONS) and start Python.
FIRST_ANSWER_S = 30.0
LAST_ANSWER_S = 5.0
SCRIPT = Path(host_facts.__file__).resolve()


def execute(
    plan: Plan,
    *,
    deadline_s: float = 120.0,
    live: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    interrupts: Interrupts | None = None,
    turns: Turns | None = None,
) -> Execution:
    """Run a plan to its end. When this returns or raises, no process of the run is left.

    Args:
        plan: what to start; a plan is good for one execution.
        deadline_s: if a task makes no step for this time, the run ends as `hung`. What is no step
            has more time, see `launch.watch.patience`.
        live: show the output of all tasks as it comes, each line with its task's name.
        on_progress: called at every change of any task.
        interrupts: held by a caller who executes several plans in threads; None: held here.
        turns: held by a caller who freezes the run at times; None: it is never frozen.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after everything was ended.
        SystemExit: on SIGTERM or SIGHUP, likewise. But with interrupts that say so, a run that
            saves is asked by the first SIGTERM to end as `preempted`.
    """
    run_dir = Path(plan.run_dir)
    if program := _missing_program(plan):
        return refused(f"{program} is not installed. `ringside doctor` shows what is installed.")
    made = to_be_made(plan, run_dir)
    try:
        claim = claimed(plan, run_dir)
    except OSError as error:
        remove(made)
        return refused(f"The folder of a run must be writable: {error}.")
    if claim is None:
        return refused(f"{run_dir} holds a run already; every run needs a folder of its own.")
    if plan.listens_everywhere:
        _warn_of_open_ports(plan.remote_hosts, is_root=os.geteuid() == 0)
    records = Records(plan)
    try:
        with claim:
            if obstacle := _obstacle(plan, run_dir, interrupts):
                execution = refused(obstacle)
            else:
                follower = Follower(run_dir) if live else None
                on_progress = on_progress or (lambda progress: None)
                execution = _run(
                    plan, records, deadline_s, follower, on_progress, interrupts, turns
                )
    except BaseException:
        records.finish()
        if not written(run_dir):
            remove(made)
        raise
    if execution.outcome.kind == "refused" and not execution.records:
        remove(made)
    return execution


@cache  # once, however many runs there are
def _warn_of_open_ports(hosts: tuple[str, ...], *, is_root: bool) -> None:
    """Say who can reach the servers of a run: they ask for no password."""
    here = ", ".join(f"{name} {there[0]}" for name, there in interfaces().items() if name != "lo")
    where = f"this machine ({here or 'loopback only'})"
    power = "AS ROOT read and write any file" if is_root else "read and write your files"
    print(
        f"warning: runs listen on every interface of {' and '.join([where, *hosts])}. Anyone who "
        f"reaches their ports can {power}. docs/security.md says how to close them.",
        file=sys.stderr,
        flush=True,
    )


def _run(
    plan: Plan,
    records: Records,
    deadline_s: float,
    follower: Follower | None,
    on_progress: Callable[[Progress], None],
    interrupts: Interrupts | None,
    turns: Turns | None,
) -> Execution:
    """Start and watch the processes of a prepared run; see `execute`."""
    watch = Watch(Path(plan.run_dir), plan.expects, queued=plan.queued)
    limit = LogLimit(Path(plan.run_dir))
    with (
        Interrupts() if interrupts is None else nullcontext(interrupts) as interrupts,
        Keepers(plan) as keepers,
    ):
        if absent := keepers.roll_call(FIRST_ANSWER_S, interrupts.raise_noted):
            return refused(keepers.complaint(absent))
        started, started_unix_s = time.monotonic(), time.time()
        with Children(plan, dict(os.environ)) as children:
            state = _State(children, records, watch, keepers, deadline_s)
            if turns is not None:
                turns.keepers = keepers
            try:
                took_s = 0.0
                while not state.over():
                    resting = turns is not None and turns.resting
                    children.wait(RESTING_POLL_S if resting else pause_after(took_s))
                    _pass_on(interrupts, plan, keepers, watch)
                    if resting:
                        watch.rest()
                    began = time.monotonic()
                    news = watch.look()
                    took_s = time.monotonic() - began
                    for progress in news:
                        on_progress(progress)
                    if follower is not None:
                        follower.copy()
                    limit.keep()
                state.look_for_lost_hosts()
            finally:
                if turns is not None:
                    turns.thaw()  # a frozen process cannot end in good order
        wall_s = max(0.0, children.ended_at - started)
    if follower is not None:
        follower.copy(rest=True)
    state.evidence.survivors = (*map(str, children.survivors), *keepers.survivors)
    execution = state.ended(plan, wall_s)
    return execution.replace(started_unix_s=started_unix_s, boot_id=boot_id())


def _pass_on(interrupts: Interrupts, plan: Plan, keepers: Keepers, watch: Watch) -> None:
    """Ask a run that saves to end at the first SIGTERM, or to be resized; else raise."""
    if plan.spec.save == "all" and interrupts.preempts():
        keepers.tell(sweep.PREEMPT)
        begun = any(at.phase in SAVES for at in watch.latest.values())
        if not (sweep.preempt_members(plan.run_id) or (plan.remote_hosts and begun)):
            if interrupts.preempting:
                interrupts.stop()
            interrupts.resizing = False
    interrupts.raise_noted()


def pause_after(look_s: float) -> float:
    """Seconds until the next look at the files of all tasks, after one that took so long."""
    return min(max(POLL_S, look_s / LOOKING), RESTING_POLL_S)


def refused(reason: str) -> Execution:
    """The execution of a run that was not started."""
    return Execution(outcome=Outcome(kind="refused", reason=reason), records=(), wall_s=0.0)


@dataclass
class _State:
    """The state of a run: it goes on, is in trouble, or is at its end."""

    children: Children
    records: Records
    watch: Watch
    keepers: Keepers
    deadline_s: float
    evidence: Evidence = field(default_factory=Evidence)
    give_up_at: float = math.inf
    closing: bool = False

    def over(self) -> bool:
        """Check everything once; returns True if there is nothing left to wait for."""
        self.records.look()
        for child in sorted(self.children.started.values(), key=lambda c: c.exited or 0.0):
            if child.exited is not None and child not in self.evidence.exits:
                self.evidence.exits.append(child)
        alive = self.children.alive()
        self.evidence.lost = self.keepers.lost()
        if not alive or self.evidence.lost:
            return True
        if all(child.process.serves for child in alive):
            self._close(alive)
        elif self.give_up_at == math.inf and self._in_trouble():
            self.give_up_at = time.monotonic() + REPORT_GRACE_S
        elif self.give_up_at == math.inf:
            self.evidence.still_s, self.evidence.still = self.watch.standing_still(self.deadline_s)
        return bool(self.evidence.still) or time.monotonic() > self.give_up_at

    def ended(self, plan: Plan, wall_s: float) -> Execution:
        """What became of it, once everything has ended."""
        self.records.look()
        self.watch.look()
        self.evidence.progress = self.watch.latest
        verdict = judge(plan, self.records, self.evidence)
        # What did not reach its own log is in its launcher's log.
        logs = (verdict.task, LAUNCHER_NAME) if verdict.task else ()
        said = (last_lines(Path(plan.run_dir), log, LAST_LINES) for log in logs)
        return Execution(
            outcome=verdict.outcome,
            records=self.records.finish(),
            wall_s=wall_s,
            failing_task=verdict.task,
            last_lines=next(filter(None, said), ()),
        )

    def look_for_lost_hosts(self) -> None:
        """After a bad end ask every host once more: a lost host's peers often complain first."""
        if not (self.records.all_completed() or self.evidence.lost):
            self.evidence.lost = self.keepers.roll_call(LAST_ANSWER_S)

    def _close(self, servers: list[Child]) -> None:
        """Only servers are left: tell each to stop once it serves. Before that it cannot hear."""
        if not self.closing:
            self.closing = True
            self.give_up_at = time.monotonic() + SERVER_GRACE_S
        for child in servers:
            ready = self.watch.latest[child.process.name].phase == SERVING
            if not child.asked_to_stop and (ready or self._in_trouble()):
                self.children.stop_gently(child)

    def _in_trouble(self) -> bool:
        """Whether the run can no longer complete."""
        well = {LAUNCHER_NAME, *self.records.completed()}
        return (
            bool(self.records.unreadable or self.records.read.keys() - well)
            or not {child.process.name for child in self.evidence.exits} <= well
        )


def _missing_program(plan: Plan) -> str:
    """A program that is not installed here; empty: all are."""
    for process in plan.processes:
        program = process.argv[0]
        path = environment(os.environ, process, tell="")["PATH"]
        if shutil.which(program, path=path) is None:
            return program
    return ""


def _obstacle(plan: Plan, run_dir: Path, interrupts: Interrupts | None) -> str:
    """Make the folders, write the plan's files and ask every machine whether it is ready."""
    try:
        for folder in FOLDERS:
            (run_dir / folder).mkdir(parents=True, exist_ok=True)
        for name, text in plan.files.items():
            write_whole(run_dir / name, text)
    except OSError as error:
        return f"The folder of a run must be writable: {error}."
    spec_file = run_dir / SPEC
    ports: dict[str, list[int]] = {"": [], **{host: [] for host in plan.remote_hosts}}
    for task in plan.cluster.tasks() if plan.cluster else ():
        name, _, port = task.address.rpartition(":")
        ports[name if name in plan.remote_hosts else ""].append(int(port))
    if found := host_facts.obstacles(spec_file, ports.pop("")):
        return f"This machine is not ready: {'; '.join(found)}."
    ask = (plan.python, "-I", "-S", str(SCRIPT), "ready", str(spec_file))
    answers = ssh.ask_all(
        {host: (*ask, *map(str, own)) for host, own in ports.items()},
        limit_s=FIRST_ANSWER_S,
        interrupts=interrupts,
    )
    said = {
        host: answer.why if isinstance(answer, ssh.NoAnswer) else answer.strip()
        for host, answer in answers.items()
    }
    return " ".join(f"{host} is not ready: {what}." for host, what in said.items() if what)
