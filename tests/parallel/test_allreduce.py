"""`ringside allreduce`, typed: every stack that runs here, in real processes, on tiny arrays."""

from pathlib import Path

import pytest

from ringside_core.specs import Communication
from tests.parallel.typed import ringside

pytestmark = pytest.mark.usefixtures("warm_commands")


@pytest.mark.timeout(300)
def test_every_stack_computes_the_closed_form(tmp_path: Path) -> None:
    """Each rank's own cores and times, no wrong element; what cannot run says why."""
    # AUTO is left out: on CPUs it takes the same ring.
    stacks = "mpi,horovod mpi,horovod gloo,horovod nccl,tf.distribute RING,tf.distribute NCCL"

    done = ringside(
        *("allreduce", "--sizes", "8B,64KiB", "--seconds", "0.01", "--stacks", stacks),
        *("--output", str(tmp_path), "--name", "one"),
        output=tmp_path,  # what it measures of tiny arrays is not what a comparison finds later
    )

    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "one" / "communication.json").read_text()
    communication = Communication.from_json(text)
    assert [stack.stack for stack in communication.stacks] == stacks.split(",")
    for stack in communication.stacks:
        if "nccl" in stack.stack.lower() and not communication.machine.gpus:
            assert "needs NVIDIA GPUs" in stack.outcome.reason
            continue
        assert stack.outcome.completed, stack.outcome
        assert stack.cores == communication.stacks[0].cores
        assert [timing.size_bytes for timing in stack.timings] == [8, 65536]
        assert {(timing.num_ranks, timing.wrong) for timing in stack.timings} == {(2, 0)}
        assert min(len(timing.seconds) for timing in stack.timings) >= 5
    assert "Bus bandwidth" in done.stdout
