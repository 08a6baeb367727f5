"""Start processes that verify, and read what they wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch import LauncherName, Plan, Site, execute, make_plan
from launch.interrupts import Interrupts
from launch.launchers import Launcher
from launch.launchers.ranks import Ranks, starts_ranks
from ringside.certificates.trace import Trace
from ringside.certificates.trial_request import trace_file
from ringside_core.specs import THIS_MACHINE, Execution, Placement, RunSpec

DEADLINE_S = 600.0


@dataclass(frozen=True)
class Start:
    """How the processes of an arm are started.

    Attributes:
        placement: their hosts.
        launcher: the launcher that starts them; `auto`: the one that the backend joins.
    """

    placement: Placement = THIS_MACHINE
    launcher: LauncherName = "auto"

    def launcher_of(self, spec: RunSpec) -> LauncherName:
        """The launcher of a run; one process needs none."""
        single = spec.capabilities.process_model == "single"
        return "auto" if single else self.launcher

    def plan(self, spec: RunSpec, folder: Path) -> Plan:
        """The processes of a run.

        Raises:
            RefusalError: a launcher that its backend cannot join.
        """
        launcher: LauncherName | Launcher = self.launcher_of(spec)
        if launcher == "auto" and self.placement == THIS_MACHINE and starts_ranks(spec):
            launcher = Ranks()
        return make_plan(
            spec, run_dir=folder, site=Site.here(), placement=self.placement, launcher=launcher
        )


HERE = Start()


@dataclass(frozen=True)
class Watched:
    """The result of one request: the outcome of its processes, and their traces by case.

    Attributes:
        tasks: processes that should have written a trace of each case.
    """

    execution: Execution
    traces: Mapping[str, Mapping[str, Trace]]
    folder: Path
    tasks: tuple[str, ...]


def watched(
    cases: Sequence[str],
    spec: RunSpec,
    folder: Path,
    interrupts: Interrupts | None = None,
    start: Start = HERE,
) -> Watched:
    """Start the processes of a run whose folder holds a request, and read what they wrote.

    Args:
        cases: names of what is asked for.
        spec: its backend and topology are those of the processes.
        folder: of these processes; it holds nothing but the request.
        interrupts: held by a caller who starts several sets; None: held here.
        start: where and by which launcher.
    """
    plan = start.plan(spec, folder)
    execution = execute(plan, deadline_s=DEADLINE_S, interrupts=interrupts)
    coordinated = spec.capabilities.process_model == "coordinator"
    watching = tuple(t for t in plan.expects if not coordinated or t.startswith("chief"))
    traces = {
        case: {
            task: Trace.read(path)
            for task in watching
            if (path := trace_file(folder, case, task)).exists()
        }
        for case in cases
    }
    return Watched(execution, traces, folder, watching)
