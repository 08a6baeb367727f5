"""A timeline as a file that Perfetto opens (ui.perfetto.dev, or `trace_processor`).

Chrome's trace format: a process of Perfetto's is a process of a run, each part of a step has
tracks. All stacks begin at 0, so that steps of two stacks stand below each other.
"""

import json
from typing import Any

from ringside_core.specs.timeline import Lane, Timeline

# In the order in which they stand.
ORDER = (
    *("step", "input", "reading", "forward", "backward", "collective", "optimizer", "other"),
    *("waiting", "own"),
)
NAMES = {"own": "said by the stack"}


def perfetto_json(timeline: Timeline) -> str:
    """The text of the file; times in µs."""
    events: list[dict[str, Any]] = []
    number = 0
    for stack in timeline.stacks:
        for lane in stack.lanes:
            number += 1
            name = f"{stack.label}{' with its timeline' if stack.says else ''}, {lane.task}"
            events += _lane(lane, number, name, stack.begin_ns)
    text = {"traceEvents": events, "displayTimeUnit": "ms"}
    return json.dumps(text, separators=(",", ":"), ensure_ascii=False)  # Perfetto shows \\u00d7


def _lane(lane: Lane, pid: int, name: str, zero_ns: int) -> list[dict[str, Any]]:
    slices: list[tuple[str, str, int, int, int, int | None]] = []
    for k, (begin, end) in enumerate(lane.steps):
        slices.append(("step", f"step {k + 1}", 0, begin, end - begin, None))
        for first, last in lane.spans(k, "waiting"):
            slices.append(("waiting", "waiting", 0, first, last - first, None))
    slices += lane.slices
    tracks = sorted({(ORDER.index(kind), track) for kind, _, track, *_ in slices})
    tids = {place: tid for tid, place in enumerate(tracks, start=1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}},
    ]
    for (place, _), tid in tids.items():
        kind = NAMES.get(ORDER[place], ORDER[place])
        about = {"pid": pid, "tid": tid, "ph": "M"}
        events.append({**about, "name": "thread_name", "args": {"name": kind}})
        events.append({**about, "name": "thread_sort_index", "args": {"sort_index": tid}})
    for kind, what, track, begin, took, size in slices:
        event: dict[str, Any] = {"ph": "X", "pid": pid, "tid": tids[ORDER.index(kind), track]}
        event |= {"cat": kind, "name": what, "ts": (begin - zero_ns) / 1000, "dur": took / 1000}
        if size is not None:
            event["args"] = {"bytes": size}
        events.append(event)
    return events
