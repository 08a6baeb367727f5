"""The figures of one run, computed again from the JSON; see `second_opinion`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringside_core.specs import capabilities_of

Array = NDArray[np.float64]
SMALLEST = {"step_p95_ms": 20, "step_p99_ms": 100}  # times that a quantile needs
MARKED = 4  # executions at the beginning of a block, beside those whose input was prefetched


def executions_of(run: dict[str, Any], warm_up_epochs: int) -> pd.DataFrame:
    """The executions that count in the blocks of a live run: pass, examples, steps, seconds.

    Columns 0, 1, … are the seconds of each process, and `each` is those a step of the slowest one.
    """
    timed = [record["epochs"] for record in run["records"] if record["role"] != "server"]
    rows = []
    for number, of_all in enumerate(zip(*timed, strict=True)):
        first = of_all[0]
        each = _durations(of_all)
        count = each.shape[1]
        ends = np.minimum(first["steps_per_time"] * np.arange(1, count + 1), first["steps"])
        frame = pd.DataFrame({"steps": np.diff(ends, prepend=0), "epoch": number})
        frame["each"] = each.max(axis=0)
        frame[list(range(len(each)))] = (each * frame["steps"].to_numpy()).T
        frame["examples"] = frame["steps"] * (first["examples"] / first["steps"])
        rows.append(frame)
    line = pd.concat(rows, ignore_index=True)
    line["done"] = line["steps"].cumsum()
    warm = line.loc[line["epoch"] < warm_up_epochs, "steps"].sum()
    edges = [run["blocks"][0]["begun_after"], *(one["ended_after"] for one in run["blocks"])]
    line["pass"] = pd.cut(line["done"], edges, labels=[one["number"] for one in run["blocks"]])
    line = line.dropna().astype({"pass": int})
    line["nth"] = line.groupby("pass").cumcount()
    begun = {one["number"]: one["begun_after"] for one in run["blocks"]}
    marked = MARKED + run["spec"]["pipeline"]["prefetch"]
    if not capabilities_of(run["spec"]["backend"]).synchronous:  # each worker has its buffers
        marked *= int(np.prod(list(run["spec"]["topology"].values())))
    counting: pd.Series = (line["nth"] >= marked) & (line["pass"].map(begun) >= warm)
    return pd.DataFrame(line.loc[counting])


def blocks_of(run: dict[str, Any], warm_up_epochs: int) -> pd.DataFrame:
    """Examples and seconds of each block that counts, by its pass."""
    parts = executions_of(run, warm_up_epochs).groupby(["pass", "epoch"]).sum()
    processes = sum(record["role"] != "server" for record in run["records"])
    parts["s"] = parts[list(range(processes))].apply(_together(run), axis=1)
    return parts.groupby("pass")[["examples", "s"]].sum()


def _together(run: dict[str, Any]) -> Callable[[Sequence[float]], float]:
    """The slowest of processes that wait for each other; else as fast as all together."""
    if capabilities_of(run["spec"]["backend"]).one_model:
        return max
    return lambda seconds: len(seconds) / sum(1 / one for one in seconds)


def figures_of(run: dict[str, Any], warm_up_epochs: int) -> dict[str, float]:
    """The figures of one run; without those that it cannot have."""
    if run["outcome"]["kind"] != "completed":
        return {}
    records = run["records"]
    found: dict[str, float] = {}
    timed = [record["epochs"] for record in records if record["role"] != "server"]
    epochs = list(zip(*timed, strict=True))[warm_up_epochs:]
    if epochs:
        together = _together(run)
        seconds = sum(together([epoch["train_s"] for epoch in of_all]) for of_all in epochs)
        found["throughput_examples_s"] = sum(of_all[0]["examples"] for of_all in epochs) / seconds
        times = 1000 * np.concatenate([_durations(of_all).max(axis=0) for of_all in epochs])
        if run["blocks"]:
            line = executions_of(run, warm_up_epochs)
            times = 1000 * line["each"].to_numpy()
            if line.empty:
                del found["throughput_examples_s"]
            else:
                total = blocks_of(run, warm_up_epochs).sum()
                found["throughput_examples_s"] = float(total["examples"] / total["s"])
        whole = pd.DataFrame(
            [
                (number, epoch["examples"], epoch["train_s"], epoch["beside_s"])
                for number, of_all in enumerate(epochs)
                for epoch in of_all
            ],
            columns=["epoch", "examples", "train_s", "beside_s"],
        )
        whole["s"] = whole["train_s"] + pd.to_numeric(whole["beside_s"])
        if whole["s"].notna().all():
            longest = whole.groupby("epoch")[["examples", "s"]].max().sum()
            found["whole_epochs_examples_s"] = float(longest["examples"] / longest["s"])
        places = _slots(run["spec"]) * sum(of_all[0]["steps"] for of_all in epochs)
        found["padding_share"] = 1 - sum(of_all[0]["examples"] for of_all in epochs) / places
        for name, percent in (("step_time_ms", 50), ("step_p95_ms", 95), ("step_p99_ms", 99)):
            if len(times) >= SMALLEST.get(name, 1):
                found[name] = float(np.quantile(times, percent / 100))
    pages = pd.DataFrame(
        [
            (
                one["boot_id"],
                one["peak_memory_bytes"] or None,
                one["shared_memory_bytes"],
            )
            for one in records
        ],
        columns=["host", "peak", "shared"],
    )
    if len(pages) and pages.notna().all(axis=None):
        own = float((pages["peak"] - pages["shared"]).sum())
        found["peak_pss_bytes"] = own + float(pages.groupby("host")["shared"].max().sum())
    chief = next((record for record in records if record["is_chief"]), None)
    cpu_s = [(one["startup_cpu_s"], one["cpu_s"]) for one in records]
    if cpu_s and all(began is not None and total for began, total in cpu_s):
        found["startup_cpu_s"] = sum(began for began, _ in cpu_s)
        if chief is not None and chief["epochs"]:
            each = [epoch["examples"] for epoch in chief["epochs"]]
            once = chief["epochs"][0]["steps_per_time"] * _slots(run["spec"])
            after = sum(each) - min(each[0], once)
            if after:
                spent_s = sum(total - began for began, total in cpu_s)
                found["cpu_s_per_1000_examples"] = 1000 * spent_s / after
    trained = [record for record in records if record["role"] != "server"]
    if trained and all(record["startup_s"] is not None for record in trained):
        found["startup_s"] = max(one["startup_s"] + _launched(run, one) for one in trained)
    if chief is not None and chief["quality_target"] is not None:
        metric, target = chief["quality_target"]
        met = [one for one in chief["epochs"] if one["validation"].get(metric, -math.inf) >= target]
        if met:
            after = met[0]["end_since_process_start_s"]
            found["time_to_target_s"] = after + _launched(run, chief)
    return found


def _slots(spec: dict[str, Any]) -> int:
    """Places of one step, for examples or padding; asynchronous workers step alone."""
    if capabilities_of(spec["backend"]).synchronous:
        return int(spec["global_batch"])
    one = spec["topology"]
    workers = one["hosts"] * one["processes_per_host"] * one["replicas_per_process"]
    return int(spec["global_batch"]) // int(workers)


def _launched(run: dict[str, Any], record: dict[str, Any]) -> float:
    """Seconds from the command to the start of a process; 0 if they are of two clocks."""
    if run["started_unix_s"] is None or not run["boot_id"] == record["boot_id"] != "":
        return 0.0
    return float(max(record["started_unix_s"] - run["started_unix_s"], 0.0))


def _durations(of_all: Sequence[dict[str, Any]]) -> Array:
    """Seconds of each step of one epoch, [process, time]."""
    first = of_all[0]
    each, steps = first["steps_per_time"], first["steps"]
    ends = np.array([epoch["step_end_s"] for epoch in of_all])
    last = np.minimum(np.arange(1, ends.shape[1] + 1) * each, steps)
    seconds: Array = np.diff(ends, prepend=0.0) / np.diff(last, prepend=0)
    return seconds
