"""One supervised run with a fault, or without."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from launch import make_plan
from launch.attempts import trainers_of
from ringside.certificates.processes import Start
from ringside.certificates.subject import Subject
from ringside.drill.cells import Cell
from ringside.drill.disk import small_disk
from ringside.drill.faults import LASTS_S, struck_host, victim
from ringside.drill.left import deviation, unlike
from ringside.drill.outside import mend, processes_of, strike
from ringside.drill.supervisor import Ended, Supervised
from ringside_core.specs import Outcome, RefusalError, write_whole
from ringside_core.specs.fault_request import (
    FOLDER,
    REACHED,
    FaultRequest,
    tell_struck,
    write_request,
)

RESTARTS = 3
POLL_S = 0.02
GONE_S = 60.0  # the processes of a killed launcher have so long to end
SUPERVISED, SAID = "supervised.json", "attempts.jsonl"


class Run:
    """One run of an arm, under a supervisor of its own.

    Args:
        subject: the arm, with a run that saves.
        fault: its name; empty: none.
        folder: of the run; new.
        start: where and by which launcher.
        deadline_s: see `launch.execute`.
        min_replicas: see `launch.elastic`; None: the run keeps its size.
    """

    def __init__(
        self,
        subject: Subject,
        fault: str,
        folder: Path,
        start: Start,
        *,
        deadline_s: float,
        min_replicas: int | None = None,
    ) -> None:
        self.spec, self.label, self.exact = subject.spec, subject.arm.label, subject.exact
        self.fault, self.folder = fault, folder
        launcher = start.launcher_of(self.spec)
        # As the supervisor makes it: `Start.plan` may leave the launcher out.
        self.plan = make_plan(
            self.spec, run_dir=folder, placement=start.placement, launcher=launcher
        )
        self._asked = Supervised(
            spec=self.spec,
            run_dir=str(folder),
            placement=start.placement,
            launcher=launcher,
            restarts=RESTARTS if fault else 0,
            min_replicas=min_replicas,
            deadline_s=deadline_s,
        )

    def without_a_fault(self) -> Outcome:
        """Run it, and say how it ended."""
        with self._begun():
            self._process.wait()
        ended = self._ended()
        return ended[-1].outcome if ended else Outcome(kind="failed", reason=self._complaint())

    def with_its_fault(self, whole: Path, *, updates: int, after: int, fit: int) -> Cell:
        """Run it, make the fault, and compare what is left with what the whole run has left.

        Args:
            whole: folder of the run without a fault.
            updates: that were planned for it.
            after: updates after which the fault is made.
            fit: in which training of a script, from 1.
        """
        task = victim(self.fault, self.spec, self.plan)
        with contextlib.ExitStack() as stack:
            if self.fault == "disk-full":
                self.folder.mkdir(parents=True)
                stack.enter_context(small_disk(self.folder, whole))
            request = FaultRequest(fault=self.fault, task=task, update=after, fit=fit)
            write_request(self.folder, request)
            stack.enter_context(self._begun())
            cell = Cell(arm=self.label, fault=self.fault, exact=self.exact)
            if (done := self._all_have_reached()) is None:
                ended = self._ended()
                how = str(ended[-1].outcome) if ended else self._complaint()
                outcomes = tuple(one.outcome for one in ended)
                why = f"its run ended before update {after}: {how}"
                return cell.replace(obstacle=why, outcomes=outcomes)
            try:
                cell = self._struck(cell, task, updates - done, fit)
            except (ProcessLookupError, RefusalError) as error:
                gone = Outcome(kind="failed", reason="what was to be struck had gone")
                return cell.replace(obstacle=str(error), outcomes=(gone,))
            return cell.replace(
                outcomes=tuple(one.outcome for one in self._ended()),
                other_rows=unlike(self.folder, whole),
                deviation=deviation(self.folder, whole),
            )

    @contextlib.contextmanager
    def _begun(self) -> Iterator[None]:
        """The supervisor, started; at the end it is gone, and with it the run."""
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / FOLDER / SUPERVISED, self._asked.to_json())
        self._supervise()
        try:
            yield
        finally:
            self._process.kill()
            self._process.communicate()
            self._wait_until_gone()

    def _wait_until_gone(self) -> None:
        """Until the guard of a killed run has ended its processes."""
        give_up = time.monotonic() + GONE_S
        while processes_of(self.folder) and time.monotonic() < give_up:
            time.sleep(POLL_S)

    def _supervise(self) -> None:
        folder = self.folder / FOLDER
        with (folder / SAID).open("ab") as said, (folder / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ringside.drill.supervisor", str(folder / SUPERVISED)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=log,
            )

    def _ended(self) -> list[Ended]:
        lines = (self.folder / FOLDER / SAID).read_text(encoding="utf-8").splitlines()
        return [Ended.model_validate_json(line) for line in lines]

    def _trained(self) -> list[Ended]:
        """Those that were not refused at their start: such a one leaves nothing."""
        return [one for one in self._ended() if one.outcome.kind != "refused"]

    def _complaint(self) -> str:
        log = (self.folder / FOLDER / "supervisor.log").read_text(errors="replace")
        return (log.strip().splitlines() or ["its supervisor said nothing"])[-1]

    def _all_have_reached(self) -> int | None:
        """The updates that every task has done that will wait; None: the run was over before."""
        coordinated = self.spec.capabilities.process_model == "coordinator"
        tasks = 1 if coordinated else self.spec.topology.num_processes
        while self._process.poll() is None and not self._ended():
            files = list((self.folder / FOLDER).glob(f"{REACHED}*"))
            if len(files) == tasks:
                return max(int(file.read_text()) for file in files)
            time.sleep(POLL_S)
        return None

    def _struck(self, cell: Cell, task: str, left: int, fit: int) -> Cell:
        """Make the fault, and follow the run to its end."""
        host = struck_host(self.fault, self.plan)
        struck = time.time()
        seen = -1  # attempts that had ended when the run was seen beyond the fault
        mended_at = struck + LASTS_S.get(self.fault, 0.0)
        try:
            supervisor = self._process.pid
            strike(self.fault, self.folder, task, host=host, supervisor=supervisor, fit=fit)
            if self.fault == "launcher-killed":
                self._process.wait()
                self._wait_until_gone()
                cell = cell.replace(noticed_s=time.time() - struck)
            tell_struck(self.folder)
            if self.fault == "launcher-killed":
                self._supervise()
            while self._process.poll() is None:
                if time.time() >= mended_at:
                    mend(self.fault, self.folder, host)
                    mended_at = float("inf")
                ended = len(self._trained())
                if ended > seen and (again := self._beyond(left, ended, fit)) is not None:
                    cell = cell.replace(back_s=time.time() - struck, again=again)
                    seen = ended
                time.sleep(POLL_S)
        finally:
            mend(self.fault, self.folder, host)
        attempts = self._trained()
        if len(attempts) - 1 > seen:  # what went beyond it has failed
            cell = cell.replace(back_s=None, again=None)
        if cell.noticed_s is None and attempts and not attempts[0].outcome.completed:
            cell = cell.replace(noticed_s=max(0.0, attempts[0].at_unix_s - struck))
        return cell

    def _beyond(self, left: int, ended: int, fit: int) -> int | None:
        """Updates that were made once more, when every task has fewer left; None: not yet."""
        attempts = ended + (self.fault == "launcher-killed")
        if attempts and not (self.folder / "attempts" / str(attempts)).exists():
            return None  # what is there is of the attempt that has ended
        trainers = trainers_of(self.folder)
        if not trainers or not all(one.fit == fit and one.steps_left < left for one in trainers):
            return None
        return max(0, max(one.total_steps for one in trainers) - left) if attempts else 0
