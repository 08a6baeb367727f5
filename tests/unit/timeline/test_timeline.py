"""Parts of a traced step against an independent calculation; the file for Perfetto."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from ringside.report.plots import timeline_plot
from ringside.report.sections.timeline import steps_table, timeline_section
from ringside.report.write import write_report
from ringside.timeline.perfetto import perfetto_json
from ringside_core.specs.timeline import RESULT, Lane, Slice, Stack, Timeline, merged, without
from tests.unit.report.small import small

ZERO = 1_800_000_000_000_000_000  # ns since 1970
MS = 1_000_000


def lane(task: str = "rank-0", later_ms: float = 0.0) -> Lane:
    """Two steps of 10 ms. Of the first, 2 ms are waited for a collective of 5."""
    begin = ZERO + int(later_ms * MS)
    slices = [
        Slice("forward", "dense/MatMul", 0, begin, 3 * MS),
        Slice("forward", "dense/BiasAdd", 1, begin + 2 * MS, 2 * MS),
        Slice("collective", "reduce", 0, begin + 3 * MS, 5 * MS, 4000),
        Slice("optimizer", "SGD/Assign", 0, begin + 6 * MS, MS),
        Slice("own", "ALLREDUCE g", 1, begin + 3 * MS, 4 * MS),
        Slice("forward", "dense/MatMul", 0, begin + 10 * MS, 3 * MS),
        Slice("collective", "reduce", 0, begin + 13 * MS, 5 * MS, 4000),
    ]
    steps = ((begin, begin + 10 * MS), (begin + 10 * MS, begin + 20 * MS))
    return Lane(task=task, steps=steps, slices=tuple(slices), times_as_long=1.5)


TIMELINE = Timeline(
    stacks=(
        Stack(label="horovod ×2", lanes=(lane(), lane("rank-1", 0.5))),
        Stack(label="mirrored ×2", lanes=(lane("local", 3e3),)),
        Stack(label="horovod ×2", lanes=(lane(),), says=True),
    )
)


def test_spans_are_those_of_a_bitmap() -> None:
    """Union and difference of random spans, against arrays of single moments."""
    random = np.random.default_rng(0)
    for _ in range(200):
        drawn = random.integers(0, 60, (2, 5, 2))
        covered = np.zeros((2, 60), bool)
        spans = [[tuple(sorted(map(int, pair))) for pair in side] for side in drawn]
        for side, pairs in zip(covered, spans, strict=True):
            for begin, end in pairs:
                side[begin:end] = True
        unions = [merged((begin, end) for begin, end in side if begin < end) for side in spans]
        left = without(*unions)
        for expected, got in ((covered[0], unions[0]), (covered[0] & ~covered[1], left)):
            bitmap = np.zeros(60, bool)
            for begin, end in got:
                assert begin < end and not bitmap[begin:end].any()
                bitmap[begin:end] = True
            assert (bitmap == expected).all()


def test_a_step_waits_where_a_collective_runs_alone() -> None:
    """3 to 8 ms, but for the end of a forward operation and an optimizer's."""
    waits = lane().spans(0, "waiting")
    assert [(b - ZERO, e - ZERO) for b, e in waits] == [(4 * MS, 6 * MS), (7 * MS, 8 * MS)]


def test_the_file_has_every_slice_in_its_step() -> None:
    """Each stack begins at 0; processes of one stack keep their distance."""
    events = json.loads(perfetto_json(TIMELINE))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert list(names.values()) == [
        *("horovod ×2, rank-0", "horovod ×2, rank-1", "mirrored ×2, local"),
        "horovod ×2 with its timeline, rank-0",
    ]
    drawn = [e for e in events if e["ph"] == "X"]
    for pid, begin in ((1, 0.0), (2, 500.0), (3, 0.0), (4, 0.0)):
        own = [e for e in drawn if e["pid"] == pid]
        assert [e["ts"] for e in own if e["cat"] == "step"] == [begin, begin + 10_000]
        reduces = [e for e in own if e["cat"] == "collective"]
        assert [(e["ts"], e["dur"], e["args"]) for e in reduces] == [
            (begin + 3_000, 5_000, {"bytes": 4000}),
            (begin + 13_000, 5_000, {"bytes": 4000}),
        ]
        for tid in {e["tid"] for e in own}:  # on one track nothing overlaps
            ends = sorted((e["ts"], e["ts"] + e["dur"]) for e in own if e["tid"] == tid)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))


def test_a_table_and_a_picture() -> None:
    """The parts of the step of median length, in ms; a caption for who cannot see the picture."""
    (section,) = timeline_section(TIMELINE)
    assert section.answer == (
        "horovod ×2 waits for collectives 40 % of a step (30 % to 50 %); "
        "mirrored ×2 waits for collectives 40 % of a step (30 % to 50 %)."
    )
    rows = steps_table(TIMELINE).rows
    assert [row[0].main for row in rows] == [
        *("horovod ×2, rank-0", "horovod ×2, rank-1", "mirrored ×2, local")
    ]
    assert [cell.main for cell in rows[0][1:]] == ["10", "–", "3.5", "–", "5", "0.5", "–", "4"]
    assert rows[0][5].note == "1 operation, 3.91 KiB"
    plot = timeline_plot(TIMELINE)
    assert plot.svg.count("rank-0 input") == 1 and "rank-1 input" in plot.svg
    assert not list(timeline_section(None))


def test_a_trace_joins_a_report(tmp_path: Path) -> None:
    """Where it lies beside the records; `verify-report` would render the same."""
    page = write_report(small(), tmp_path)
    assert "What happens within a step?" not in page.read_text(encoding="utf-8")

    (tmp_path / RESULT).write_text(TIMELINE.to_json(), encoding="utf-8")
    write_report(small(), tmp_path)

    text = page.read_text(encoding="utf-8")
    assert "What happens within a step?" in text and "rank-1 input" in text


@pytest.mark.slow
def test_horovods_timeline_is_read() -> None:
    """As Horovod 0.28.1 wrote it: its first event says since when its µs count."""
    from backends import horovod_ring  # TensorFlow

    text = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1795}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "gy"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},{"ph": "E", "ts": 12, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 20, "pid": 1},
{"ph": "B", "name": "MPI_ALLREDUCE", "ts": 21, "pid": 1},{"ph": "E", "ts": 25, "pid": 1},
{"ph": "E", "ts": 26, "pid": 1, "args": {"dtype": "float32", "shape": "[7]"}},
{"ph": "i", "name": "CYCLE_START", "ts": 30, "s": "g"},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 31, "pid": 1}]"""
    assert [tuple(one) for one in horovod_ring.timeline_entries(text)] == [
        ("NEGOTIATE_ALLREDUCE gy", 1, 1_805_000, 2_000),
        ("MPI_ALLREDUCE gy", 1, 1_816_000, 4_000),
        ("ALLREDUCE gy", 1, 1_815_000, 6_000),
    ]
