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


def availability(request: dict[str, Any]) -> dict[str, Any]:
    """Look at the machine; start nothing.

    Args:
        request: `arms`: list of {backend, options, replicas on this host}.

    Returns:
        `obstacles`: for each arm the reason why it cannot run here, or None; `gpus`: how many.
    """
    obstacles: list[str | None] = []
    for arm in request["arms"]:
        options = backend_options(arm["backend"], arm["options"])
        try:
            gpus_for(arm["replicas"])
            obstacles.append(backend_class(arm["backend"]).obstacle(options))
        except RefusalError as error:
            obstacles.append(str(error))
    return {"obstacles": obstacles, "gpus": len(tf.config.list_physical_devices("GPU"))}


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])
    answer = availability(json.loads(asked.read_text(encoding="utf-8")))
    write_whole(answered, json.dumps(answer))
