"""The loop around one operation, with ranks that are threads, and the answers side by side."""

import csv
import io
import threading
from collections.abc import Callable

import numpy as np
import pytest

from ringside.collectives import store
from ringside.collectives.loop import Ranks, Took, time_everything, timed
from ringside.collectives.pattern import Floats
from ringside.collectives.request import Answer, RankTimes, Request
from ringside.collectives.run import joined, samples_csv
from ringside_core.specs import (
    Communication,
    MachineFacts,
    Outcome,
    RefusalError,
    StackTimings,
)

MACHINE = MachineFacts(
    host="made-up", cpu_model="none", cores=2, memory_bytes=2**30, kernel="", python="", packages={}
)


class Threads:
    """Ranks in threads of this process, which share one array of arrays."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.given: list[Floats] = [np.empty(0, np.float32)] * size
        self.left_out = -1

    def exchange(self, rank: int, array: Floats) -> list[Floats]:
        """What all ranks give."""
        self.given[rank] = array.copy()
        self.barrier.wait()
        everybody = list(self.given)
        self.barrier.wait()
        return everybody


class Rank(Ranks):
    """One of them."""

    def __init__(self, threads: Threads, rank: int) -> None:
        self.threads, self.rank, self.size = threads, rank, threads.size

    def barrier(self) -> None:
        self.threads.barrier.wait()

    def slowest(self, seconds: float) -> float:
        given = self.threads.exchange(self.rank, np.array([seconds]))
        return float(np.max(given))

    def prepare(self, operation: str, array: Floats) -> Callable[[], tuple[Took, Floats]]:
        def operate() -> Floats:
            arrays = self.threads.exchange(self.rank, array)
            if operation == "broadcast":
                return arrays[0]
            kept = [a for rank, a in enumerate(arrays) if rank != self.threads.left_out]
            return np.sum(kept, axis=0, dtype=np.float32)

        return lambda: timed(self, operate)


def time_with(threads: Threads, **asked: object) -> tuple[tuple[RankTimes, ...], ...]:
    """What every rank answers."""
    request = Request(
        stack="mpi",
        **{"operations": ("allreduce", "broadcast"), "sizes": (64, 4096), "most": 8, **asked},
    )
    found: dict[int, tuple[RankTimes, ...]] = {}

    def run(rank: int) -> None:
        found[rank] = time_everything(Rank(threads, rank), request, lambda done, total: None)

    running = [threading.Thread(target=run, args=(rank,)) for rank in range(threads.size)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return tuple(found[rank] for rank in range(threads.size))


def test_all_ranks_repeat_alike_and_nothing_is_wrong() -> None:
    """Every operation runs at every size, small ones first, with two repetitions to warm up."""
    answers = time_with(Threads(3))

    for times in answers:
        assert [(t.operation, t.size_bytes) for t in times] == [
            ("allreduce", 64),
            ("allreduce", 4096),
            ("broadcast", 64),
            ("broadcast", 4096),
        ]
        assert {t.wrong for t in times} == {0}
        assert {t.warm_up for t in times} == {2}
    counts = [[len(t.seconds) for t in times] for times in answers]
    assert counts[0] == counts[1] == counts[2]
    assert all(5 <= count <= 8 for count in counts[0])


def test_a_rank_left_out_of_the_sum_is_counted_in_every_repetition() -> None:
    """All elements in all ranks are wrong, warm-up included: the second rank puts in no 0."""
    threads = Threads(2)
    threads.left_out = 1

    timings = joined([
        Answer(rank=rank, times=times)
        for rank, times in enumerate(time_with(threads, sizes=(64,), most=5))
    ])  # fmt: skip

    by_operation = {timing.operation: timing for timing in timings}
    repetitions = 2 + 5
    # Rank 1 puts in 2·((i + k) mod 1021) + 1, which is never 0.
    assert by_operation["allreduce"].wrong == 2 * repetitions * 16
    assert by_operation["broadcast"].wrong == 0


def test_no_rank_ends_while_another_still_receives() -> None:
    """The last call of every rank is the barrier."""
    calls: list[str] = []

    class Alone(Rank):
        def barrier(self) -> None:
            calls.append("barrier")

        def prepare(self, operation: str, array: Floats) -> Callable[[], tuple[Took, Floats]]:
            def operate() -> Floats:
                calls.append(operation)
                return array

            return lambda: timed(self, operate)

    request = Request(stack="mpi", operations=("broadcast",), sizes=(64,), most=1)
    time_everything(Alone(Threads(1), 0), request, lambda done, total: None)

    assert calls == ["barrier", "broadcast"] * 3 + ["barrier"]


def made_up() -> Communication:
    """One stack that ran and one that could not."""
    answers = [
        Answer(
            rank=rank,
            times=(
                RankTimes(
                    operation="allreduce",
                    size_bytes=4096,
                    seconds=(0.1 + rank, 0.2 + rank, 0.3 + rank),
                    wrong=rank,
                    warm_up=2,
                ),
            ),
        )
        for rank in range(2)
    ]
    return Communication(
        created_unix_s=1.0,
        command="ringside allreduce",
        machine=MACHINE,
        code_version="v",
        num_ranks=2,
        stacks=(
            StackTimings(
                stack="mpi",
                outcome=Outcome(kind="completed"),
                cores=((0,), (1,)),
                timings=joined(answers),
            ),
            StackTimings(stack="horovod nccl", outcome=Outcome(kind="refused", reason="no GPU")),
        ),
    )


def test_answers_are_joined_by_repetition_and_rank() -> None:
    """Times stand side by side; mistakes are added up."""
    (timing,) = made_up().stacks[0].timings

    assert timing.seconds == ((0.1, 1.1), (0.2, 1.2), (0.3, 1.3))
    assert timing.wrong == 1
    assert timing.count == 1024


def test_the_csv_holds_every_sample() -> None:
    """The numbers are the same when they are read back from text."""
    rows = list(csv.DictReader(io.StringIO(samples_csv(made_up()))))

    assert len(rows) == 6
    assert {row["stack"] for row in rows} == {"mpi"}
    assert [(int(r["repetition"]), int(r["rank"]), float(r["seconds"])) for r in rows] == [
        (0, 0, 0.1), (0, 1, 1.1), (1, 0, 0.2), (1, 1, 1.2), (2, 0, 0.3), (2, 1, 1.3),
    ]  # fmt: skip


def test_a_document_with_wrong_elements_has_not_passed() -> None:
    """A stack that cannot run here does not matter; a failed one does."""
    wrong = made_up()
    mpi, nccl = wrong.stacks
    right = wrong.replace(stacks=(mpi.replace(timings=(mpi.timings[0].replace(wrong=0),)), nccl))
    failed = Outcome(kind="failed", reason="it died", error_class="ProcessDied")

    assert not wrong.passed
    assert right.passed
    assert not right.replace(stacks=(nccl, nccl.replace(outcome=failed))).passed


def test_other_ranks_are_refused() -> None:
    """A timing of two ranks must not stand in a document of three."""
    with pytest.raises(RefusalError, match="2 ranks, of 3"):
        made_up().replace(num_ranks=3)


def test_what_was_kept_is_found_on_this_machine_by_this_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """On another machine, by other code, or in a file that is cut short, nothing is found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(store, "machine_facts", lambda: MACHINE)
    here = made_up().replace(code_version=store.code_version())
    assert store.find_communication() is None

    path = store.keep(here)

    assert store.find_communication() == here
    store.keep(here.replace(code_version="older"))
    assert store.find_communication() is None
    store.keep(here.replace(machine=MACHINE.replace(host="elsewhere")))
    assert store.find_communication() is None
    path.write_text(here.to_json()[:-20])
    assert store.find_communication() is None
