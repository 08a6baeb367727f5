"""What `ringside allreduce` prints and refuses."""

from pathlib import Path

import pytest
from rich.console import Console

import ringside.cli.main
from ringside.cli.allreduce import render, render_models
from ringside_core.specs import (
    Communication,
    MachineFacts,
    Outcome,
    StackTimings,
    Timing,
)
from ringside_core.specs.communication import Operation


def timed(operation: Operation, size: int, *seconds: tuple[float, float], wrong: int = 0) -> Timing:
    """A timing of two ranks."""
    return Timing(operation=operation, size_bytes=size, seconds=seconds, wrong=wrong)


def printed(*stacks: StackTimings) -> list[str]:
    """Both tables on 120 columns, line by line."""
    communication = Communication(
        created_unix_s=0,
        command="ringside allreduce",
        machine=MachineFacts(
            host="here", cpu_model="", cores=2, memory_bytes=1, kernel="", python="", packages={}
        ),
        code_version="",
        num_ranks=2,
        stacks=stacks,
        add_seconds_per_byte=1e-10,
    )
    console = Console(width=120)
    with console.capture() as captured:
        console.print(render(communication))
        console.print(render_models(communication))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_line_has_every_figure() -> None:
    """By hand: means 4 and 4 ms, medians 2 and 4 ms; 4 MiB in 4 ms are 1.049 GB/s, on the bus too.

    The second has 100 repetitions, one of which is slow: enough for a p99.
    """
    completed = Outcome(kind="completed")
    size = 4 * 2**20
    times = timed("allreduce", size, (0.002, 0.004), (0.001, 0.004), (0.009, 0.004), wrong=1234)
    push = timed("push_pull", 4096, *[(0.001, 0.001)] * 99, (0.101, 0.101))

    lines = printed(
        StackTimings(stack="mpi", outcome=completed, timings=(times,)),
        StackTimings(stack="parameter_server", outcome=completed, timings=(push,)),
    )

    assert "bare MPI allreduce 4 MiB 1,048,576 4.000 3.000 – 1.049 1.049 3 1,234" in lines
    assert "parameter_server push/pull 4 KiB 1,024 2.000 1.000 2.000 0.002 – 100 0" in lines


def test_a_stack_that_did_not_run_says_why() -> None:
    """One line has the whole reason, with or without brackets, and names the stack."""
    reason = "NCCL needs NVIDIA GPUs: nvidia-smi names none [of them]"
    long = Outcome(kind="failed", reason="it broke:\n\n  File one\n  File two")
    hung = Outcome(kind="hung", reason="nobody moved", after_s=300)
    died = Outcome(kind="failed", reason="rank-1 died", error_class="ProcessDied")
    completed = Outcome(kind="completed")
    times = timed("allreduce", 4096, (0.001, 0.001))

    lines = printed(
        StackTimings(stack="horovod nccl", outcome=Outcome(kind="refused", reason=reason)),
        StackTimings(stack="mpi", outcome=died),
        StackTimings(stack="horovod gloo", outcome=hung),
        StackTimings(stack="horovod mpi", outcome=long),
        StackTimings(stack="tf.distribute RING", outcome=completed, timings=(times,)),
    )

    assert f"horovod nccl not run: {reason}" in lines
    assert "bare MPI failed(ProcessDied: rank-1 died)" in lines
    assert "horovod gloo hung(300 s): nobody moved" in lines
    assert "horovod mpi failed(it broke: … (whole above)" in lines
    assert sum("tf.distribute RING" in line for line in lines) == 1


def test_a_model_is_printed_with_its_error() -> None:
    """t = 2·10 µs + n ÷ 1e9 (γ: half a byte at 1e-10 s): 1/β = 1 ÷ 0.95e-9 = 1.05 GB/s."""
    times = [timed("allreduce", n, (2e-5 + n * 1e-9,) * 2) for n in (4096, 2**20, 2**26)]

    lines = printed(
        StackTimings(stack="mpi", outcome=Outcome(kind="completed"), timings=tuple(times))
    )

    assert "bare MPI allreduce 10.0 1.05 10.00 0% 0%" in lines


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--stacks", "nccl"], "There is no stack of that name"),
        (["--sizes", "4 kilobytes"], "B, KiB, MiB or GiB"),
        (["--sizes", "6B"], "multiple of 4 bytes"),
        (["--replicas", "1"], "greater than or equal to 2"),
        (["--seconds", "inf"], "must be a finite number of seconds. Received: inf"),
        (["--seconds", "nan"], "greater than or equal to 0.01"),
        # 2 arrays × 2 ranks × 1 EiB
        (["--sizes", "1073741824GiB"], "2 arrays of 1,073,741,824 GiB each: 4,294,967,296 GiB"),
        (["--name", "full"], "a folder of their own"),
        (["--replicas", "5000", "--sizes", "1MiB"], "exact in float32"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    flags: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, one message, no traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "full").mkdir(parents=True)
    (tmp_path / "runs" / "full" / "kept").touch()
    monkeypatch.setattr("ringside.collectives.run.execute", lambda *_, **__: pytest.fail("started"))

    code = ringside.cli.main.run(["allreduce", *flags])

    said = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert words in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "full", "kept"]
