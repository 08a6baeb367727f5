"""A run as one batch job of Slurm: the script, and the plan that submits and follows it."""

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pydantic import PositiveInt

from launch.logs import log_file
from launch.plan import LAUNCHER, LAUNCHER_NAME, RUN_ID, Plan, Process, rank_names
from launch.site import Site
from ringside_core.specs import THIS_MACHINE, Noun, Placement, RefusalError, RunSpec, Topology

SCRIPT = "job.sh"
LOG_NAME = "slurm"
# Options that the script sets itself, and options that would make another kind of job.
OWN = (
    *("--array", "-a", "--chdir", "-D", "--cpus-per-task", "-c", "--error", "-e"),
    *("--clusters", "-M"),  # we would ask the wrong cluster how the job ended
    *("--job-name", "-J", "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--output", "-o"),
    *("--parsable", "--requeue", "--test-only", "--wait", "-W", "--wrap"),
)
# Before the time limit, for the tasks to agree, save and end (trainers/preemption.py).
SAVE_S = 120
# Slurm answers at once, or it waits for a controller that does not answer.
ANSWER_S = 60.0
_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")
_NAME = re.compile(r"--?[A-Za-z][A-Za-z-]*")


class Slurm(Noun):
    """One batch job in the queue of Slurm. All nodes must see the folder of the run.

    Attributes:
        nodes: the processes are spread evenly over this many nodes; None: Slurm chooses.
        lines: more options for `#SBATCH`, such as `--partition=gpu`.
    """

    nodes: PositiveInt | None = None
    lines: tuple[str, ...] = ()

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a run in the queue of Slurm; nothing is asked, nothing is submitted.

        Raises:
            RefusalError: a hostfile; processes that do not divide by the nodes; a line that is no
                option of sbatch, or is one that the script sets itself.
        """
        if placement != THIS_MACHINE:
            raise RefusalError(
                "In Slurm, sbatch chooses the hosts.",
                received="--slurm beside a hostfile or its flags",
                advice="Leave the hostfile away. Use --nodes and --sbatch.",
            )
        for line in self.lines:
            _refuse_line(line)
        spec = spec.replace(topology=_over(spec.topology, self.nodes))
        name = f"ringside-{site.run_id}"
        program = (site.python, "-I", "-S", f"{site.root}/launch/launchers/slurm_job.py")
        log = log_file(run_dir, LOG_NAME)
        run = (*program, "run", str(run_dir / SCRIPT), str(log))
        return site.plan(
            spec,
            run_dir,
            processes=(Process(name=LAUNCHER_NAME, argv=run, env={RUN_ID: site.run_id}),),
            expects=_names(spec),
            files={SCRIPT: _script(spec, name=name, run_dir=run_dir, site=site, lines=self.lines)},
            cleanup=((*program, "end", name),),
            queued=True,
        )


def must_be_accepted(plan: Plan) -> None:
    """Ask Slurm whether it would accept the job; nothing is submitted.

    Raises:
        RefusalError: no Slurm, an unknown partition or account, or more than there is.
    """
    accepted, _, said = _asked("sbatch", "--test-only", text=plan.files[SCRIPT])
    if not accepted:
        raise RefusalError(
            "Slurm must be there and take the job.",
            received=" ".join(said.replace("allocation failure: ", "").split()),
            advice="--dry-run prints the script, --sbatch adds to it, sinfo shows what there is.",
        )


def node_addresses(nodelist: str) -> tuple[str, ...]:
    """The address of each node of a list such as `node[1-3,7]`, in its order.

    It is the address by which Slurm itself reaches the node. The node's name need not resolve.

    Raises:
        RefusalError: scontrol is missing, or does not know a node.
    """
    command = ("scontrol", "show", "node", "--oneliner", nodelist)
    answered, said, errors = _asked(*command)
    found = _ADDRESS.findall(said)
    if not (answered and found):
        raise RefusalError(
            "A task of Slurm must be able to ask for the addresses of its nodes.",
            received=f"{' '.join(command)}: {(said + errors).strip()}",
            advice="Or set TF_CONFIG, or use mpirun or horovodrun inside of the allocation.",
        )
    return tuple(found)


def _asked(*command: str, text: str = "") -> tuple[bool, str, str]:
    """Whether a command of Slurm succeeded, its output and its errors."""
    env = {name: value for name, value in os.environ.items() if name != LAUNCHER}
    try:
        asked = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=ANSWER_S, env=env
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, "", str(error)
    return asked.returncode == 0, asked.stdout, asked.stderr


def _refuse_line(line: str) -> None:
    name = _NAME.match(line)
    if name is None or "\n" in line:
        raise RefusalError(
            "What is added to a batch script must be one option of sbatch.",
            received=repr(line),
            advice="Example: --sbatch --partition=gpu --sbatch --time=30",
        )
    # sbatch reads `-Jx` as -J, and accepts each long option by its first letters.
    long = name.group().startswith("--")
    said = name.group() if long else name.group()[:2]
    if said in OWN or (long and any(own.startswith(said) for own in OWN)):
        raise RefusalError(
            "This option of sbatch follows from the run.",
            received=line,
            advice="See --replicas, --nodes, --cores-per-replica and --run-dir.",
        )


def _over(topology: Topology, nodes: int | None) -> Topology:
    if nodes is None:
        return topology
    each, rest = divmod(topology.num_processes, nodes)
    if rest:
        raise RefusalError(
            "Processes must spread evenly over the nodes.",
            received=f"{topology.num_processes} on {nodes} nodes",
            advice="Change --replicas or --nodes, or leave --nodes away: then Slurm chooses.",
        )
    return topology.replace(hosts=nodes, processes_per_host=each)


def _names(spec: RunSpec) -> tuple[str, ...]:
    """Names of the tasks, as ringside_core.specs.surroundings gives them to the tasks of a step."""
    capabilities, size = spec.capabilities, spec.topology.num_processes
    workers = tuple(f"worker-{index}" for index in range(size))
    if capabilities.process_model == "coordinator":
        servers = spec.options.num_servers
        return ("chief-0", *workers, *(f"ps-{index}" for index in range(servers)))
    # A step with one task is alone, whatever it runs.
    return workers if size > 1 and "tf_config" in capabilities.joins else rank_names(spec)


def _script(spec: RunSpec, *, name: str, run_dir: Path, site: Site, lines: Sequence[str]) -> str:
    """The batch script: the options of sbatch, and the one step that it runs."""
    topology = spec.topology
    coordinated = spec.capabilities.process_model == "coordinator"
    cores = topology.replicas_per_process * (spec.resources.cores_per_replica or 1)
    options = {
        "job-name": name,
        "comment": spec.run_name,
        "chdir": _path(site.cwd),
        "output": _path(str(log_file(run_dir, LOG_NAME))),
        "ntasks": len(_names(spec)),
        "cpus-per-task": cores,
    }
    if topology.hosts > 1:
        options["nodes"] = topology.hosts
        if not coordinated:  # Slurm places the other tasks where there is room
            options["ntasks-per-node"] = topology.processes_per_host
    step = (
        "srun",
        # Ranks must fill one node after the other, see ringside_core/specs/slurm.py.
        "--distribution=block",
        "--kill-on-bad-exit=1",
        # Since Slurm 22.05 a step does not take this from its job.
        f"--cpus-per-task={cores}",
        *site.task_command(run_dir),
    )
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH --{option}={value}" for option, value in options.items()),
            # Its launcher follows it, and is what starts it again (--restarts).
            "#SBATCH --no-requeue",
            *([f"#SBATCH --signal=USR1@{SAVE_S}"] if spec.save == "all" else []),
            *(f"#SBATCH {line}" for line in lines),
            f"export {RUN_ID}={site.run_id}",
            "# They are of the machine that submits: no node would find what they name.",
            f"unset {LAUNCHER} TF_CONFIG",
            f"exec {shlex.join(step)}",
            "",
        ]
    )


def _path(path: str) -> str:
    """A path in an #SBATCH line, where % begins a pattern."""
    if len(path.splitlines()) != 1:  # sbatch would read other options there
        raise RefusalError("A path in a batch script must be one line.", received=repr(path))
    return shlex.quote(path.replace("%", "%%"))
