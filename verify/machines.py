"""The machine that something was found on: this one, or the first host of a hostfile."""

import functools
import subprocess

from launch import Placement, Site, ssh
from measure.machine import machine_facts
from specs import MachineFacts, RefusalError

LIMIT_S = 60.0
ASK = "from measure.machine import machine_facts; print(machine_facts().model_dump_json())"


def machine_of(placement: Placement) -> MachineFacts:
    """Facts of the first host, where every serial run is and every other one begins.

    The machine that starts the runs may be a login node, on which none of them is.

    Raises:
        RefusalError: the host does not answer.
    """
    if not placement.names or Site.here().is_local(placement.names[0]):
        return machine_facts()
    return _remote_facts(placement.names[0])


@functools.cache  # they do not change while a command runs
def _remote_facts(host: str) -> MachineFacts:
    site = Site.here()
    command = ("env", f"PYTHONPATH={site.root}", site.python, "-c", ASK)
    try:
        done = subprocess.run(
            ssh.remote_command(host, command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _silent(host, f"no answer within {LIMIT_S:.0f} s") from None
    answer = done.stdout.splitlines()
    if done.returncode or not answer:
        raise _silent(host, ssh.complaint(host, done.returncode, done.stderr, site.python))
    return MachineFacts.model_validate_json(answer[-1])  # a login script may talk before


def _silent(host: str, said: str) -> RefusalError:
    return RefusalError(
        "The first host must say what it is.",
        received=f"{host}: {said}",
        advice=f"Try: ssh {host} hostname",
    )
