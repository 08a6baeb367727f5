"""What can run here? A process of its own answers, so that a planner needs no TensorFlow.

python -m trainers.availability request.json answer.json
"""

import json
import sys
from pathlib import Path
from typing import Any

from backends import backend_class
from backends.devices import gpus_for
from ringside_core.keras import tf
from ringside_core.specs import RefusalError, backend_options, write_whole
from ringside_core.workloads.registry import load_workload


def availability(request: dict[str, Any]) -> dict[str, Any]:
    """Look at the machine and at the workload; start nothing.

    Args:
        request: `arms`: list of {backend, options, replicas on this host}; `workload`: {name,
            options, data_dir} or None.

    Returns:
        `obstacles`: for each arm the reason why it cannot run here, or None; `gpus`: how many;
        `workload`: the reason why it cannot be trained, or None.
    """
    obstacles: list[str | None] = []
    for arm in request["arms"]:
        options = backend_options(arm["backend"], arm["options"])
        try:
            gpus_for(arm["replicas"])
            obstacles.append(backend_class(arm["backend"]).obstacle(options))
        except RefusalError as error:
            obstacles.append(str(error))
    return {
        "obstacles": obstacles,
        "gpus": len(tf.config.list_physical_devices("GPU")),
        "workload": _workload_obstacle(request["workload"]),
    }


def _workload_obstacle(asked: dict[str, Any] | None) -> str | None:
    if asked is None:
        return None
    try:
        workload = load_workload(
            asked["name"], options=asked["options"], data_dir=asked["data_dir"]
        )
        workload.compiled()
    except RefusalError as error:
        return str(error)
    return None


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])  # those of a script will take their place
    answer = availability(json.loads(asked.read_text(encoding="utf-8")))
    write_whole(answered, json.dumps(answer))
