"""What a person asks for: sizes and stacks, and how many repetitions that makes."""

import shutil

import pytest

from ringside.collectives import stacks
from ringside.collectives.request import (
    DEFAULT_SIZES,
    check_memory,
    fitting,
    parse_sizes,
    repetitions,
)
from ringside.collectives.stacks import STACKS, obstacle, options_of, parse_stacks
from ringside_core.specs import RefusalError
from ringside_core.specs.options import CommunicationOptions


def test_sizes_come_sorted_and_once() -> None:
    """In bytes. Below 4096 bytes Open MPI sums in another way, which shows the latency."""
    assert parse_sizes("1MiB, 8 B,4KiB,1MiB", ranks=2) == (8, 4096, 2**20)
    assert parse_sizes(DEFAULT_SIZES, ranks=2) == (2048, *(4096 * 4**k for k in range(9)))


@pytest.mark.parametrize("text", ["", "4", "4kb", "1.5MiB", "6B", "4B", "0KiB", "1MiB-4MiB"])
def test_other_sizes_are_refused(text: str) -> None:
    """The message shows what was received and an example."""
    with pytest.raises(RefusalError, match="A size is a whole number") as refused:
        parse_sizes(f"8B,{text}", ranks=2)

    assert f"{text!r} in '8B,{text}', 2 ranks" in str(refused.value)


def test_arrays_must_fit_into_memory() -> None:
    """Each of 2 ranks has four of 1 MiB: 8 MiB, and not a byte less."""
    check_memory([4096, 2**20], ranks=2, available_bytes=8 * 2**20)
    with pytest.raises(RefusalError, match="8 MiB needed, "):
        check_memory([4096, 2**20], ranks=2, available_bytes=8 * 2**20 - 1)


@pytest.mark.parametrize(
    ("mbit_s", "largest"),
    # Two passes of n: 2 · 8 · 4 MiB / 10 Mbit/s = 6.7 s; of 16 MiB 26.8 s.
    [(10, 2**22), (100, 2**24), (1000, 2**28), (0.000_1, 2048)],
)
def test_sizes_fit_the_link(mbit_s: float, largest: int) -> None:
    """One operation takes ten seconds at most; the smallest size always stays."""
    sizes = parse_sizes(DEFAULT_SIZES, ranks=2)

    fit = fitting(sizes, mbit_s * 1e6)

    assert max(fit) == largest and fit == sizes[: len(fit)]


@pytest.mark.parametrize(
    ("wall_s", "expected"), [(0.0001, (20, 200)), (0.01, (5, 50)), (0.02, (2, 25)), (3.0, (2, 5))]
)
def test_repetitions_fit_the_budget(wall_s: float, expected: tuple[int, int]) -> None:
    """Half a second, at least 5, at most 200; a tenth more to warm up, at least 2."""
    assert repetitions(wall_s, 0.5) == expected


def test_an_unknown_stack_is_refused_with_the_nearest() -> None:
    """So is an empty list."""
    assert parse_stacks("mpi, horovod gloo,mpi") == ("mpi", "horovod gloo")
    assert parse_stacks("all") == tuple(STACKS)
    with pytest.raises(RefusalError, match="Did you mean 'horovod gloo'"):
        parse_stacks("mpi,horovod glo")
    with pytest.raises(RefusalError, match="at least one"):
        parse_stacks(",")


def test_settings_are_options_of_the_stack() -> None:
    """They follow a colon; an option that defines the stack itself cannot be set."""
    (name,) = parse_stacks("tf.distribute RING:bytes_per_pack=1048576")

    options = options_of(name)

    assert options == CommunicationOptions(implementation="RING", bytes_per_pack=2**20)
    with pytest.raises(RefusalError, match="controller is chosen by the name"):
        parse_stacks("horovod mpi:controller=gloo")


def test_what_is_missing_is_known_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only bare MPI is called through mpi4py; NCCL needs a GPU."""
    monkeypatch.setattr(stacks, "gpu_names", lambda: ())
    monkeypatch.setattr(stacks, "find_spec", lambda name: None if name == "mpi4py" else object())
    monkeypatch.setattr(shutil, "which", lambda program, path: f"/usr/bin/{program}")

    assert obstacle("horovod mpi") == obstacle("tf.distribute RING") == ""
    assert obstacle("mpi") == "mpi4py is not installed"
    assert "NVIDIA GPUs" in obstacle("horovod nccl")
    assert "NVIDIA GPUs" in obstacle("tf.distribute NCCL")

    monkeypatch.setattr(shutil, "which", lambda program, path: None)
    assert obstacle("horovod mpi") == "mpirun is not installed"
    monkeypatch.setattr(stacks, "find_spec", lambda name: None)
    assert obstacle("horovod gloo") == "Horovod is not installed"
