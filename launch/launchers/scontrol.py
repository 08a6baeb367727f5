"""What Slurm knows about its nodes, asked of `scontrol`."""

import re
import subprocess

from ringside_core.specs import RefusalError

_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")
# slurmctld answers at once, or is starved by thousands of tasks that ask.
ANSWER_S = 60.0


def node_addresses(nodelist: str) -> tuple[str, ...]:
    """The address of each node of a list such as `node[1-3,7]`, in its order.

    The address is the one by which Slurm itself reaches the node: its name need not resolve.

    Raises:
        RefusalError: scontrol is missing, or does not know a node.
    """
    command = ("scontrol", "show", "node", "--oneliner", nodelist)
    try:
        asked = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
        said, found = asked.stdout + asked.stderr, _ADDRESS.findall(asked.stdout)
        known = asked.returncode == 0 and bool(found)
    except (OSError, subprocess.TimeoutExpired) as error:
        said, found, known = str(error), [], False
    if not known:
        raise RefusalError(
            "A task of Slurm must be able to ask for the addresses of its nodes.",
            received=f"{' '.join(command)}: {said.strip()}",
            advice="Or set TF_CONFIG, or use mpirun or horovodrun inside of the allocation.",
        )
    return tuple(found)
