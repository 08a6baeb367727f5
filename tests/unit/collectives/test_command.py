"""What `ringside allreduce` prints and keeps; nothing is started."""

from pathlib import Path
from typing import Any

import pytest

import ringside.cli.main
from ringside.collectives import store
from ringside.collectives.request import Request
from ringside.collectives.stacks import STACKS
from ringside.collectives.store import find_communication
from ringside_core.specs import Communication, Outcome, StackTimings, Timing
from tests.unit.collectives.test_measurement import COMPLETED, stack_of
from tests.unit.stats.factory import MACHINE

MIB = 2**20


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the stacks that were asked for, in order; each takes 1 and 2 ms."""
    asked: list[str] = []

    def timings(request: Request, place: Any, folder: Path) -> StackTimings:
        asked.append(request.stack)
        return stack_of(request.stack, request.sizes)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("ringside.collectives.measurement._timings", timings)
    monkeypatch.setattr("ringside.collectives.measurement.machine_facts", lambda: MACHINE)
    monkeypatch.setattr(store, "machine_facts", lambda: MACHINE)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    return asked


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """(exit code, what was printed)."""
    code = ringside.cli.main.run(["allreduce", "--name", f"a{len(flags)}", *flags])
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def test_a_line_has_every_figure(
    measured: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 3, 2 and 4 ms are 3 ± 4.3027 · 1 ÷ √3; 4 MiB in 3 ms are 1.398 GB/s.

    A stack that did not run says why; wrong elements and a failure make the exit code 1.
    """
    times = ((2e-3, 4e-3), (1e-3, 3e-3), (4e-3, 4e-3))
    timing = Timing(size_bytes=4 * MIB, seconds=times, wrong=1234)
    found = {
        "mpi": StackTimings(stack="mpi", outcome=COMPLETED, timings=(timing,)),
        "horovod gloo": StackTimings(
            stack="horovod gloo", outcome=Outcome(kind="refused", reason="not installed [at all]")
        ),
    }
    monkeypatch.setattr(
        "ringside.collectives.measurement._timings", lambda request, *_: found[request.stack]
    )

    code, said = run(capsys, "--stacks", "mpi,horovod gloo", "--sizes", "4MiB")

    assert code == 1
    assert "bare MPI 4 MiB 3.00 [0.52, 5.48] n=3 1.40 1,234" in said
    assert "horovod gloo refused: not installed [at all]" in said


def test_an_interrupted_command_keeps_the_stacks_that_are_done(
    measured: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Their samples are kept, but later comparisons do not use them."""

    def timings(request: Request, *_: Any) -> StackTimings:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(request.stack)
        return stack_of(request.stack)

    monkeypatch.setattr("ringside.collectives.measurement._timings", timings)
    document = tmp_path / "runs" / "a0" / "communication.json"

    code, said = run(capsys)

    assert code == 130 and "stopped; done so far: " in said
    assert find_communication() is None
    done = Communication.from_json(document.read_text())
    assert [stack.stack for stack in done.stacks] == list(STACKS)[:2]
