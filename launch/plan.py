"""A plan: every process that a run starts, written down before anything is started."""

import shlex

from pydantic import Field

from ringside_core.specs import Cluster, Noun, RunSpec

# Marks every process of a run. By it the sweep finds processes that a launcher left behind.
RUN_ID = "RINGSIDE_RUN_ID"
# `pid:start in ticks since boot` of the process that called execute(). A task ends itself when that
# process ends.
LAUNCHER = "RINGSIDE_LAUNCHER"
# The interface on which a process listens where it would on all: see scripts/listen.c.
LISTEN_ON = "RINGSIDE_LISTEN_ON"
# Name of a process that starts the ranks itself: horovodrun, mpirun.
LAUNCHER_NAME = "launcher"


def rank_names(spec: RunSpec) -> tuple[str, ...]:
    """Names of the tasks of a run whose processes have ranks."""
    return tuple(f"rank-{rank}" for rank in range(spec.topology.num_processes))


class Process(Noun):
    """One process that Ringside itself starts.

    Attributes:
        name: its task (`rank-0`, `worker-1`, `ps-0`, `chief-0`), or `launcher` for a program that
            starts the ranks.
        argv: the command.
        env: variables that are added to the environment of the parent.
        serves: it ends on request, after every other process has ended.
        holds_stdin: it ends when its standard input does, as a task on another machine, whose
            connection ends together with this process.
        private: file for the variables that it must not show, see `launch/remote/private.py`;
            empty: it shows none.
    """

    name: str
    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    serves: bool = False
    holds_stdin: bool = False
    private: str = ""

    def render(self) -> str:
        """The process as one line for a shell."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*assignments, *map(shlex.quote, self.argv)])


class Plan(Noun):
    """Everything that one execution of a run starts. A plan can be executed once.

    Attributes:
        run_dir: folder with spec.json, logs/, progress/ and records/ of the run.
        processes: started together, in this order. None: another program starts the run from the
            files.
        expects: tasks that write a record in a completed run.
        run_id: value of RINGSIDE_RUN_ID in every process.
        cluster: the addresses at which the tasks listen, if there is a TF_CONFIG.
        remote_hosts: machines other than this one.
        python: the interpreter, here and on the remote hosts.
        files: text of each file that a launcher reads, by its name in the run dir.
        cleanup: commands that end processes which our signals do not reach. They run in any case.
        queued: the run may wait in a queue before it starts, without a limit.
    """

    spec: RunSpec
    run_dir: str
    processes: tuple[Process, ...] = ()
    expects: tuple[str, ...] = Field(min_length=1)
    run_id: str
    cluster: Cluster | None = None
    remote_hosts: tuple[str, ...] = ()
    python: str
    files: dict[str, str] = Field(default_factory=dict)
    cleanup: tuple[tuple[str, ...], ...] = ()
    queued: bool = False

    @property
    def listens_everywhere(self) -> bool:
        """Whether it waits for connections on all interfaces; not said of a run that is queued."""
        several = self.cluster is not None or len(self.expects) > 1
        bound = any(LISTEN_ON in process.render() for process in self.processes)
        return several and not (bound or self.queued)

    def render(self) -> str:
        """What --dry-run prints: the files, or for each process a line that a person could type."""
        if self.files:
            return "".join(self.files.values())
        return "".join(f"{process.render()}\n" for process in self.processes)
