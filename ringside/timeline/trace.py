"""Run arms with TensorFlow's profiler on, one after the other, and read what they leave."""

from pathlib import Path

from launch import execute
from launch.turns import WITHOUT_END
from ringside.certificates.processes import HERE
from ringside_core.specs import Arm, Execution, RefusalError, RunSpec
from ringside_core.specs.timeline import (
    HOROVOD_TIMELINE,
    ON_DEMAND,
    TRACED,
    Lane,
    Stack,
    lane_file,
)


def check_traceable(arm: Arm) -> None:
    """Refuse an arm whose steps no process of its own makes.

    Raises:
        RefusalError: of parameter servers.
    """
    if not arm.capabilities.synchronous:
        raise RefusalError(
            "A traced arm must have processes that make every step.",
            received=f"{arm.group}, whose workers get parts of a step from a coordinator",
            advice="Trace horovod, multi_worker_mirrored, or a backend of one process.",
        )


def trace(
    arm: Arm, spec: RunSpec, folder: Path, *, deadline_s: float, says: bool = False
) -> tuple[Execution, Stack]:
    """Run one arm, traced.

    Args:
        arm: that `check_traceable` lets pass.
        spec: of its run.
        folder: of the run, which does not exist yet.
        deadline_s: seconds without a step after which it counts as hung.
        says: Horovod writes its own timeline too.

    Returns:
        What became of the run, and its lanes; of one that failed, those that were written.
    """
    plan = HERE.plan(spec, folder)
    added = {HOROVOD_TIMELINE: ON_DEMAND} if says else {}
    processes = tuple(one.replace(env={**one.env, **added}) for one in plan.processes)
    # The training ends when it is traced.
    files = {**plan.files, TRACED: "", WITHOUT_END: ""}
    plan = plan.replace(processes=processes, files=files)
    execution = execute(plan, deadline_s=deadline_s)
    lanes = tuple(
        Lane.from_json(file.read_text(encoding="utf-8"), origin=str(file))
        for task in plan.expects
        if (file := lane_file(folder, task)).exists()
    )
    return execution, Stack(label=arm.label, lanes=lanes, says=says)
