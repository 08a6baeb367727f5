"""One process that verifies: it runs all cases of a request, and writes a trace of each.

verify_task.py is the program; launchers start it instead of train.py.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from launch.task import Reporter
from ringside.verify.request import (
    INSPECTION,
    REQUEST,
    Case,
    Request,
    examples_to_watch,
    trace_file,
)
from ringside.verify.store import users_code
from ringside.verify.trace import Trace
from ringside_core.specs import (
    InputShard,
    RecordInProgress,
    RefusalError,
    RunSpec,
    Surroundings,
    write_whole,
)


def work(
    record: RecordInProgress, surroundings: Surroundings, run_dir: Path, reporter: Reporter
) -> None:
    """Start the backend once, and run every case under it."""
    reporter.phase("importing")
    from trainers.process import started

    request = Request.from_json((run_dir / REQUEST).read_text(encoding="utf-8"), origin=REQUEST)
    with started(record, surroundings, reporter.phase) as backend:
        if backend is None:
            return
        cases = request.cases
        if request.inspect:
            reporter.phase("inspecting")
            inspection = _inspect(request, backend)
            write_whole(run_dir / INSPECTION, json.dumps(inspection, indent=1))
            split_matters = any(one["split"] for one in inspection["by_design"])
            cases = tuple(
                case
                for case in cases
                if not inspection["obstacles"] and (split_matters or case.virtual_replicas == 1)
            )
        steps = itertools.count(1)
        for case in cases:
            trace = watch(case, backend, run_dir, lambda: reporter.step(next(steps), 0))
            trace.meta["sources"] = users_code()
            trace.write(trace_file(run_dir, case.name, surroundings.task_name))


def watch(
    case: Case, backend: Any, run_dir: Path, on_step: Callable[[], None] = lambda: None
) -> Trace:
    """Train one case and return its trace; an error ends the case, not the process."""
    from ringside_core.keras import tf

    trace = Trace()
    tf.keras.backend.set_floatx(case.spec.precision)
    try:
        _train(case, backend, trace, run_dir / "cases" / case.name, on_step)
    except Exception as error:
        # Ringside's own checks end a training in all processes at once. If another error ends it in
        # one process only, its peers wait in a collective until the launcher ends them.
        trace.meta["error"] = f"{type(error).__name__}: {error}"
    return trace


def _train(
    case: Case, backend: Any, trace: Trace, folder: Path, on_step: Callable[[], None]
) -> None:
    """One training, or the two parts of a resumed one, watched as the case says."""
    from ringside.verify.recorder import Ends, Recorder, Watch
    from trainers.driver import Progress
    from trainers.fit import fit
    from trainers.prepare import prepare

    workload, spec = _cut(case, backend)
    if case.mistake:
        from ringside.verify.controls import make_mistake

        workload, backend = make_mistake(case.mistake, spec, workload, backend)
    progress = Progress(lambda done, total: on_step())

    def train(spec: RunSpec, *watches: Watch) -> None:
        record = RecordInProgress.begun(spec)
        try:
            driver = prepare(
                record,
                workload,
                backend,
                run_dir=folder,
                listeners=[progress, *watches],
                virtual_replicas=case.virtual_replicas,
            )
            fit(driver)
        finally:
            for one in watches:
                one.finish(record)

    if case.resumed:
        train(spec.replace(epochs=1, save="all"))
        spec = spec.replace(resume_from=str(folder / "checkpoint.npz"))
    train(spec, Ends(trace) if case.watch == "ends" else Recorder(trace))


def _cut(case: Case, backend: Any) -> tuple[Any, RunSpec]:
    """The workload with only the data that are watched, and the run over them."""
    from ringside.verify.example_random import tie_to_examples
    from ringside_core.keras import tf
    from ringside_core.workloads.pipeline import make_pipeline
    from ringside_core.workloads.registry import load_workload
    from trainers.train_step import current_ids

    spec = case.spec
    workload = load_workload(spec.workload, options=spec.workload_options, data_dir=spec.data_dir)
    build = workload.model

    def model() -> Any:
        built = build()

        def step() -> Any:
            optimizer = getattr(built, "optimizer", None)
            return tf.constant(0, tf.int64) if optimizer is None else optimizer.iterations

        tie_to_examples(built, current_ids, step)
        return built

    workload = dataclasses.replace(workload, model=model)
    if case.steps is None:
        return workload, spec
    cut: dict[str, Any] = {}
    for split, steps in (("train", case.steps), ("validation", 6)):
        # Cut after the filter, because what it drops cannot be watched.
        source = make_pipeline(
            spec, workload, backend.capabilities, training=split == "train"
        ).prepared
        cut[split] = source.first(
            examples_to_watch(source.num_examples, global_batch=spec.global_batch, steps=steps)
        )
    workload = dataclasses.replace(workload, **cut)
    per_epoch = spec.batch_plan.steps_per_epoch(workload.train.num_examples)
    return workload, spec.replace(
        epochs=max(1, -(-case.steps // per_epoch)),
        pipeline=spec.pipeline.replace(filter=None),
    )


def _inspect(request: Request, backend: Any) -> dict[str, Any]:
    """What of the workload cannot be compared without care, and the digest of all its data."""
    from ringside.verify.inspection import inspect_model
    from ringside_core.keras import tf
    from ringside_core.workloads.pipeline import make_pipeline
    from ringside_core.workloads.registry import load_workload

    spec = request.cases[0].spec
    by_design: tuple[Any, ...] = ()
    obstacles: tuple[str, ...] = ()
    data_digest = ""

    def workload_in(precision: str) -> Any:
        tf.keras.backend.set_floatx(precision)
        tf.keras.utils.set_random_seed(spec.seed)
        return load_workload(spec.workload, options=spec.workload_options, data_dir=spec.data_dir)

    try:
        # The digest is of all data, in the precision of the run: data may depend on it.
        data_digest = make_pipeline(
            spec, workload_in(request.precision), backend.capabilities, training=True
        ).data_digest
        workload = workload_in("float64")
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=True)
        x, y, *others = next(iter(pipeline.dataset(InputShard())))
        again = next(iter(pipeline.dataset(InputShard())))
        for one, other in zip(
            tf.nest.flatten((x, y, *others)), tf.nest.flatten(again), strict=True
        ):
            if not np.array_equal(one.numpy(), other.numpy()):
                raise RefusalError(
                    "The data must be the same when they are read again.",
                    received="another first batch at the second reading",
                    advice="Take chance out of `preprocess`, or tie it to the example.",
                )
        found = inspect_model(workload, batch=(x, y), replicas=request.inspect)
        by_design, obstacles = found.by_design, found.obstacles
    except RefusalError as error:
        obstacles = (str(error),)
    return {
        "by_design": [one.model_dump() for one in by_design],
        "obstacles": list(obstacles),
        "data_digest": data_digest,
    }
