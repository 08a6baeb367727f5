"""The numbers that are reduced, and the loop around the operation, with ranks that are threads."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ringside.collectives.measurement import joined
from ringside.collectives.ranks import MOST_RANKS, Floats, Ranks, elements, wrong_elements
from ringside.collectives.request import Answer, Request
from ringside_core.specs import Timing

COUNT = 5000  # several periods


def test_a_rank_puts_in_what_the_formula_says() -> None:
    """Checked element by element, in whole numbers."""
    i = np.arange(COUNT)
    for rank, repetition in ((0, 0), (3, 12), (18, 2000)):
        expected = (rank % 16 + 1) * ((i + repetition) % 1021) + rank % 7

        assert np.array_equal(elements(rank, repetition, COUNT), expected)


@pytest.mark.parametrize("ranks", [2, 3, 20, MOST_RANKS])
def test_the_sum_of_all_ranks_has_no_wrong_element(ranks: int) -> None:
    """NumPy's sum in float64 is exact, and a sum in float32 is the same."""
    arrays = [elements(rank, 7, COUNT) for rank in range(ranks)]

    exact = np.sum(arrays, axis=0, dtype=np.float64)

    assert wrong_elements(exact.astype(np.float32), ranks, 7, COUNT) == 0
    assert np.array_equal(exact, sum(arrays[1:], arrays[0]))


@pytest.mark.parametrize(("kept", "wrong"), [(0, 100), (99, 2), (100, 1), (103, 4)])
def test_each_wrong_element_counts(kept: int, wrong: int) -> None:
    """One differs by the least that float32 can; others are missing, or are too many."""
    total = elements(0, 9, 200) + elements(1, 9, 200)
    total[7] = np.nextafter(total[7], np.float32(np.inf))

    assert wrong_elements(total[:kept], 2, 9, 100) == wrong


class Threads(Ranks):
    """A rank in a thread of this process; all share one list of arrays."""

    def __init__(self, rank: int, given: list[Floats], gate: threading.Barrier, left_out: int):
        self.rank, self.size = rank, len(given)
        self._given, self._gate, self._left_out = given, gate, left_out
        self.calls: list[str] = []

    def barrier(self) -> None:
        """Each rank waits for all."""
        self.calls.append("barrier")
        self._gate.wait()

    def slowest(self, seconds: float) -> float:
        """By the list."""
        return float(np.max(self._exchange(np.array([seconds], np.float64))))

    def prepare(self, array: Floats) -> Callable[[], tuple[float, Floats]]:
        """A sum without the rank that is left out."""

        def operate() -> Floats:
            self.calls.append("allreduce")
            arrays = self._exchange(array)
            kept = [a for rank, a in enumerate(arrays) if rank != self._left_out]
            return np.sum(kept, axis=0, dtype=np.float32)

        return lambda: self.timed(operate)

    def _exchange(self, array: Floats) -> list[Floats]:
        self._given[self.rank] = array.copy()
        self._gate.wait()
        everybody = list(self._given)
        self._gate.wait()
        return everybody


def time_with(
    ranks: int, sizes: tuple[int, ...], left_out: int = -1
) -> tuple[list[Answer], list[Threads]]:
    """What every rank answers."""
    request = Request(stack="mpi", sizes=sizes, budget_s=1e-9)
    given, gate = [np.empty(0, np.float32)] * ranks, threading.Barrier(ranks)
    threads = [Threads(rank, given, gate, left_out) for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        timings = pool.map(lambda rank: rank.time_all(request, lambda done, total: None), threads)
        return [Answer(timings=found) for found in timings], threads


def test_all_ranks_repeat_the_same_number_of_times() -> None:
    """Small sizes first; two repetitions to warm up, then five; a barrier before each.

    The last call of every rank is a barrier: no rank ends while another still receives.
    """
    answers, threads = time_with(3, sizes=(64, 4096))

    for answer, thread in zip(answers, threads, strict=True):
        assert [timing.size_bytes for timing in answer.timings] == [64, 4096]
        assert {timing.wrong for timing in answer.timings} == {0}
        assert {(len(t.seconds), t.warm_up) for t in answer.timings} == {(5, 2)}
        assert thread.calls == ["barrier", "allreduce"] * 2 * (2 + 5) + ["barrier"]


def test_a_rank_left_out_is_counted_in_every_repetition() -> None:
    """All 16 elements in both ranks, warm-up included: rank 1 puts in 2·(…) + 1, never 0."""
    answers, _ = time_with(2, sizes=(64,), left_out=1)

    (timing,) = joined(answers)

    assert timing.wrong == 2 * (2 + 5) * 16


def test_answers_are_joined_by_repetition_and_rank() -> None:
    """Times stand side by side; wrong elements are added up."""
    first = Timing(size_bytes=4096, seconds=((0.1,), (0.2,)), wrong=3, warm_up=2)
    second = first.replace(seconds=((1.1,), (1.2,)), wrong=4)

    (timing,) = joined([Answer(timings=(first,)), Answer(timings=(second,))])

    assert timing == first.replace(seconds=((0.1, 1.1), (0.2, 1.2)), wrong=7)
