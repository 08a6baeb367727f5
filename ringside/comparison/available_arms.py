"""Find out which arms can run here, and why others cannot, before anything is trained."""

import json
import subprocess
from typing import Any

from ringside_core.die_with_parent import answer_of
from ringside_core.specs import Arm, NotRun, RefusalError, Shared
from ringside_core.specs.keras_version import KerasVersion, environment_of
from ringside_core.workloads.registry import fit_asked

LIMIT_S = 300.0


def available(
    arms: tuple[Arm, ...], shared: Shared, *, elsewhere: bool = False
) -> tuple[tuple[Arm, ...], tuple[NotRun, ...]]:
    """Which arms can run here. A process of its own loads TensorFlow and finds out.

    Args:
        arms: that are wanted.
        shared: their workload and its Keras.
        elsewhere: they will run on other hosts; this one need not have a GPU for each replica.

    Returns:
        The arms that can run, and the others with their reasons.

    Raises:
        RefusalError: the workload cannot be trained under any backend, or no arm can run.
    """
    fit_asked(shared.workload, shared.workload_options, shared.data_dir)
    answer = ask(arms, shared.keras, elsewhere=elsewhere)
    able, unable = [], []
    for arm, obstacle in zip(arms, answer["obstacles"], strict=True):
        if obstacle is None:
            able.append(arm)
        else:
            unable.append(NotRun(label=arm.label, reason=obstacle))
    if not able:
        raise RefusalError(
            "At least one arm must be able to run here.",
            received="; ".join(f"{arm.label}: {arm.reason}" for arm in unable),
        )
    return tuple(able), tuple(unable)


def ask(
    arms: tuple[Arm, ...], keras: KerasVersion = 2, *, elsewhere: bool = False
) -> dict[str, Any]:
    """Run `trainers.availability` on a Keras; its answer, see there.

    Raises:
        RefusalError: that process failed; its last error is in the message.
    """
    request = {
        "arms": [
            {
                "backend": arm.backend,
                "options": arm.options.model_dump(),
                "replicas": 1 if elsewhere else arm.replicas,
            }
            for arm in arms
        ]
    }
    try:
        environment = environment_of(keras)
        answer, errors = answer_of(
            "trainers.availability", json.dumps(request), limit_s=LIMIT_S, environment=environment
        )
    except subprocess.TimeoutExpired:
        raise RefusalError(
            "Checking what can run here took too long.",
            received=f"no answer within {LIMIT_S:.0f} s",
            advice="Try `ringside doctor`. If that hangs too, TensorFlow itself hangs.",
        ) from None
    if answer is None:
        raise RefusalError("The program must run up to its training.", received=errors)
    return answer
