"""What a person asks for, and how many repetitions that makes."""

import shutil

import pytest

from ringside.collectives import stacks
from ringside.collectives.place import Place
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


def test_a_range_takes_four_times_the_size_each_time() -> None:
    """Each size of a range is four times the one before; here the largest of the default."""
    expected = [4096, 16384, 65536, 262144, 2**20, 2**22, 2**24, 2**26, 2**28]

    assert list(parse_sizes("4KiB-256MiB", ranks=2)) == expected


def test_the_default_has_a_size_below_4096_bytes() -> None:
    """Below 4096 bytes Open MPI sums in another way, which shows the latency."""
    assert min(parse_sizes(DEFAULT_SIZES, ranks=2)) == 2048


def test_sizes_come_sorted_and_once() -> None:
    """Ranges and single sizes may be mixed."""
    assert parse_sizes("1MiB, 8 B,4KiB-64KiB,16KiB", ranks=2) == (8, 4096, 16384, 65536, 2**20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "whole number"),
        ("4", "'4' in '4'"),
        ("4kb", "'4kb'"),
        ("1.5MiB", "'1.5MiB'"),
        ("1MiB-4KiB", "begins with the smaller"),
        ("6B", "6 bytes, 2 ranks"),
        ("4B", "4 bytes, 2 ranks"),
        ("0KiB", "0 bytes, 2 ranks"),
        ("0B-4KiB", "0 bytes, 2 ranks"),
    ],
)
def test_other_sizes_are_refused(text: str, words: str) -> None:
    """The message shows what was received and an example."""
    with pytest.raises(RefusalError, match=words) as refused:
        parse_sizes(text, ranks=2)

    assert "4KiB-256MiB" in str(refused.value)


def test_arrays_must_fit_into_memory() -> None:
    """Each of 3 ranks has two of the largest: 6 MiB, and not a byte less."""
    sizes = parse_sizes("4KiB-1MiB", ranks=3)

    check_memory(sizes, ranks=3, available_bytes=6 * 2**20)
    with pytest.raises(RefusalError, match="3 ranks, 2 arrays of 1 MiB each: "):
        check_memory(sizes, ranks=3, available_bytes=6 * 2**20 - 1)


def test_an_unknown_stack_is_refused_with_the_nearest() -> None:
    """So are a stack that is named twice, and an empty list."""
    assert parse_stacks("mpi, horovod gloo") == ("mpi", "horovod gloo")
    assert parse_stacks("all") == tuple(STACKS)
    with pytest.raises(RefusalError, match="Did you mean 'horovod gloo'"):
        parse_stacks("mpi,horovod glo")
    with pytest.raises(RefusalError, match="'mpi' twice"):
        parse_stacks("mpi,mpi")
    with pytest.raises(RefusalError, match="at least one"):
        parse_stacks(",")


def test_nccl_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is known without starting a process."""
    monkeypatch.setattr("ringside.collectives.stacks.gpu_names", lambda: ())

    assert "NVIDIA GPUs" in obstacle("tf.distribute NCCL")
    assert obstacle("tf.distribute RING") == ""


def test_every_stack_has_the_same_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank gets its share, whoever starts it."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5})

    specs = [Place.here(2).of_stack(name)[0] for name in STACKS]

    resources = {spec.resources for spec in specs}
    assert {(r.cores_per_replica, r.intra_op_threads) for r in resources} == {(3, 3)}
    assert {spec.topology.num_processes for spec in specs} == {2}


def test_settings_are_options_of_the_stack() -> None:
    """They follow a colon; an option that defines the stack itself cannot be set."""
    (name,) = parse_stacks("tf.distribute RING:bytes_per_pack=1048576")

    options = options_of(name)

    assert options == CommunicationOptions(implementation="RING", bytes_per_pack=2**20)
    with pytest.raises(RefusalError, match="Did you mean 'btl_tcp_flags'"):
        parse_stacks("horovod mpi:btl_tcp_flag=9")
    with pytest.raises(RefusalError, match="controller is chosen by the name"):
        parse_stacks("horovod mpi:controller=gloo")
    with pytest.raises(RefusalError, match="an option of Open MPI"):
        parse_stacks("horovod gloo:btl_tcp_flags=9")


@pytest.mark.parametrize(
    ("mbit_s", "largest"),
    # 2 ranks: two passes of n. 2 · 8 · 4 MiB / 10 Mbit/s = 6.7 s; of 16 MiB 26.8 s.
    [(10, 2**22), (100, 2**24), (1000, 2**28), (0.000_1, 4096)],
)
def test_sizes_fit_the_link(mbit_s: float, largest: int) -> None:
    """The longest operation takes ten seconds; the smallest size always stays."""
    sizes = parse_sizes("4KiB-256MiB", ranks=2)

    fit = fitting(sizes, ranks=2, bits_per_s=mbit_s * 1e6)

    assert max(fit) == largest and fit == sizes[: len(fit)]


@pytest.mark.parametrize(
    ("wall_s", "expected"),
    [
        (0.0001, (20, 200)),  # more would fit
        (0.01, (5, 50)),
        (0.02, (2, 25)),
        (3.0, (2, 5)),  # over the budget, but no fewer
    ],
)
def test_repetitions_fit_the_budget(wall_s: float, expected: tuple[int, int]) -> None:
    """Half a second, at least 5, at most 200; a tenth more to warm up, at least 2."""
    assert repetitions(wall_s, most=200, budget_s=0.5) == expected


def test_fewer_repetitions_can_be_asked_for() -> None:
    """Fewer than five, too."""
    assert repetitions(0.001, most=3, budget_s=0.5) == (2, 3)


def test_horovod_needs_mpirun_and_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only bare MPI is called through it."""
    monkeypatch.setattr(stacks, "find_spec", lambda name: None if name == "mpi4py" else object())
    monkeypatch.setattr(shutil, "which", lambda program, path: f"/usr/bin/{program}")

    assert obstacle("horovod mpi") == ""
    assert obstacle("mpi") == stacks.no_mpi() == "mpi4py is not installed"

    monkeypatch.setattr(shutil, "which", lambda program, path: None)
    assert obstacle("horovod mpi") == "mpirun is not installed"
