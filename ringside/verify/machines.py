"""The machine that something was found on: this one, or the first host of a hostfile."""

import functools

from pydantic import ValidationError

from launch import Placement, Site
from launch.remote import ssh
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import MachineFacts, RefusalError

LIMIT_S = 60.0
# One line: to csh, a quoted text ends with its line.
ASK = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from ringside_core.readings.machine import machine_facts; "
    "print(machine_facts().model_dump_json())"
)


def machine_of(placement: Placement) -> MachineFacts:
    """Facts of the first host, where every serial run is and every other one begins.

    The machine that starts the runs may be a login node, on which none of them is.

    Raises:
        RefusalError: the host does not answer, or says something else.
    """
    if not placement.names or Site.here().is_local(placement.names[0]):
        return machine_facts()
    return _remote_facts(placement.names[0])


@functools.cache  # they do not change while a command runs
def _remote_facts(host: str) -> MachineFacts:
    site = Site.here()
    command = (site.python, "-c", ASK.format(root=site.root))
    answer = ssh.ask_all({host: command}, limit_s=LIMIT_S)[host]
    if isinstance(answer, str):
        try:
            return MachineFacts.model_validate_json(answer)
        except ValidationError:
            answer = ssh.nonsense(site.python, answer)
    raise RefusalError(
        "The first host must say what it is.",
        received=f"{host}: {answer.why}",
        advice=f"Try: ssh {host} hostname",
    )
