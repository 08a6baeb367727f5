"""How long runs took: kept, so that later comparisons on this machine can estimate their time."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from ringside_core.folders import cache_dir
from ringside_core.specs import THIS_MACHINE, Placement, RunSpec, write_whole
from ringside_core.workloads.registry import is_own

MOST_KEPT = 2000


def durations_file() -> Path:
    """The file in which they are kept."""
    return cache_dir() / "durations.json"


def known_durations() -> dict[str, float]:
    """Seconds by key, the oldest first; empty if there is no readable file."""
    try:
        found = json.loads(durations_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: float(v) for k, v in found.items() if isinstance(v, (int, float)) and v > 0}


def remember(spec: RunSpec, seconds: float, placement: Placement = THIS_MACHINE) -> None:
    """Keep how long a whole run took. A cache that cannot be written is no error."""
    kept = known_durations()
    kept.pop(_key(spec, placement), None)
    kept[_key(spec, placement)] = round(seconds, 2)
    newest = dict(list(kept.items())[-MOST_KEPT:])
    try:
        write_whole(durations_file(), json.dumps(newest))
    except OSError:
        return


def expected_s(specs: Iterable[RunSpec], placement: Placement = THIS_MACHINE) -> float | None:
    """About how long these runs take, one after the other; None: one of them is unknown."""
    kept = known_durations()
    times = [kept.get(_key(spec, placement)) for spec in specs]
    known = [time for time in times if time is not None]
    return sum(known) if known and len(known) == len(times) else None


def _key(spec: RunSpec, placement: Placement) -> str:
    """Identifies a run without its seed, which differs in each round."""
    place = os.getcwd() if is_own(spec.workload) or spec.data_dir else ""
    return f"{spec.replace(seed=0).content_hash[:16]}{','.join(placement.names)}{place}"
