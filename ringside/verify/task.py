"""What a process that verifies does: all cases of a request, and a trace of each.

train.py is the program. It hands in the function by which it trains a run, so that every case is
trained by the very lines that are timed (docs/decisions/0004-what-a-certificate-proves.md).
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ringside.verify.cases import ROUNDED, WATCHED, in_float32
from ringside.verify.gate import parity
from ringside.verify.request import (
    INSPECTION,
    PLAIN,
    REQUEST,
    STATES,
    Case,
    Request,
    case_folder,
    examples_to_watch,
    looked_file,
    trace_file,
)
from ringside.verify.same_elements import Looked
from ringside.verify.store import users_code
from ringside.verify.trace import OTHER_DATA, Trace
from ringside_core.specs import (
    ByDesign,
    InputShard,
    RecordInProgress,
    RefusalError,
    RunSpec,
    write_whole,
)
from ringside_core.specs.run_spec import Precision
from ringside_core.users_errors import essence, in_one_line, names_a_type, of_users

# In float64, of weights that are moved by one rounding. Most programs stay a hundred times below.
NEARLY = 1e-12
# train.py's function: (record, run_dir, prepare=…) → None.
Train = Callable[..., None]


def run_cases(
    backend: Any, run_dir: Path, train: Train, task: str, on_phase: Callable[[str], None]
) -> None:
    """Run every case of the request in a run folder, and write a trace of each.

    Args:
        backend: started.
        run_dir: holds the request.
        train: trains what a record says; `prepare=` takes the place of `trainers.prepare.prepare`.
        task: name of this process.
        on_phase: told what is done before the cases.
    """
    request = Request.from_json((run_dir / REQUEST).read_text(encoding="utf-8"), origin=REQUEST)
    inspection: dict[str, Any] = {}
    if request.inspect:
        on_phase("inspecting")
        inspection = inspect_workload(request, backend)
    cases, rounds, whole = _to_run(request, inspection), False, Trace()
    while cases:
        case = cases.pop(0)
        first = case.name == f"{WATCHED}{ROUNDED}"
        if case.moved and not (rounds or first):
            continue
        trace = watch(case, case_folder(run_dir, case.name), train)
        if request.inspect and (why := _why_not_in_float64(case, trace, request)):
            inspection = inspect_workload(request, backend, not_in_float64=why)
            cases = _to_run(request, inspection)
            continue
        if case.name == WATCHED:
            whole = trace
        if first:
            rounds = bool(inspection["not_in_float64"]) or _amplifies_rounding(trace, whole)
        if case.moved and not rounds:
            continue
        trace.meta["sources"] = users_code()
        trace.write(trace_file(run_dir, case.name, task))
    if request.inspect:
        write_whole(run_dir / INSPECTION, json.dumps(inspection, indent=1))
    if request.look is not None:
        on_phase("looking")
        looked = _looked(backend, request.look)
        write_whole(looked_file(run_dir, task), looked.to_json())


def _to_run(request: Request, inspection: Mapping[str, Any]) -> list[Case]:
    """The cases of a request; of the serial run's, those that the workload needs and can run.

    Args:
        request: of these processes.
        inspection: of the workload; empty: it was not inspected.
    """
    if not inspection:
        return [*request.cases]
    narrow = bool(inspection["not_in_float64"])
    split_matters = any(one["split"] for one in inspection["by_design"])
    needed = [
        case
        for case in request.cases
        if not inspection["obstacles"] and (split_matters or case.virtual_replicas == 1)
    ]
    return [in_float32(case) for case in needed] if narrow else needed


def _amplifies_rounding(moved: Trace, whole: Trace) -> bool:
    """Whether the serial run in float64 makes more of a rounding than can be left aside.

    Args:
        moved: the run that began with moved weights; an error of it will be seen in the other, too.
        whole: the run itself.
    """
    if moved.error or whole.error:
        return False
    worst = parity({"": moved}, whole, precision="float64").worst
    return worst is not None and worst.exceeds(NEARLY)


def _why_not_in_float64(case: Case, trace: Trace, request: Request) -> str:
    """Why a case of a run in float32 failed in float64, if its types are why; else empty.

    Nothing but training shows that.
    """
    wide = case.spec.precision == "float64" != request.precision
    kind, _, text = trace.error.partition(": ")
    if not wide or kind in ("RefusalError", "DivergedError") or not names_a_type(text):
        return ""
    return f"it cannot be trained in float64: {kind}: {essence(text)}"


def _looked(backend: Any, seed: int) -> Looked:
    """What this process is fed of all data, held against the workload's own elements."""
    from ringside.verify.elements import look
    from ringside_core.keras import set_floatx
    from ringside_core.workloads.registry import load_workload

    spec = backend.spec
    set_floatx(spec.precision, spec.policy)
    try:
        workload = load_workload(
            spec.workload, options=spec.workload_options, data_dir=spec.data_dir
        )
        return look(spec, workload, backend, seed)
    except Exception as error:  # of the user's code, at data that were cut in the cases
        return Looked(seed=seed, wrong=f"the data cannot be read: {of_users(error)}")


def watch(case: Case, folder: Path, train: Train) -> Trace:
    """Train one case and return its trace; an error ends the case, not the process."""
    from ringside_core.keras import clear_session, set_floatx

    set_floatx(case.spec.precision, case.spec.policy)
    parts = [Trace() for _ in range(1 + case.resumed)]
    try:
        # Layers that a workload makes when it is loaded are named as in a new process.
        clear_session()
        if case.resumed:
            _train_to_stop(case, parts[0], folder, train)
            clear_session()
        _train(case, parts[-1], folder, train)
    except Exception as error:
        # Ringside's own checks end a training in all processes at once. If another error ends it in
        # one process only, its peers wait in a collective until the launcher ends them.
        parts[-1].meta["error"] = of_users(error)
    return parts[0].then(parts[1]) if case.resumed else parts[0]


def _train_to_stop(case: Case, trace: Trace, folder: Path, train: Train) -> None:
    """The first epoch of a case, watched and saved."""
    from ringside.verify.recorder import Recorder

    watcher = Recorder(trace)
    record = RecordInProgress.begun(case.spec.replace(save="all"))
    prepare = partial(_prepared_to_stop, case=case, trace=trace, watching=[watcher])
    try:
        train(record, folder, prepare=prepare)
    finally:
        watcher.finish(record)


def _train(case: Case, trace: Trace, folder: Path, train: Train) -> None:
    """One training, or the second part of one that was stopped, watched as the case says."""
    from ringside.verify.draws import DrawnError, Draws
    from ringside.verify.recorder import Ends, Last, Recorder, Watch
    from ringside.verify.states import FromStates, KeepStates, Moved
    from trainers.driver import Listener

    spec = case.spec
    if case.resumed:
        spec = spec.replace(resume_from=str(folder / "checkpoint.npz"))
    kinds: dict[str, type[Watch]] = {
        "steps": Recorder,
        "last": Last,
        "ends": Ends,
        "draws": Draws,
    }
    watcher = kinds[case.watch](trace)
    watching: list[Listener] = [watcher]
    if case.keep_states:
        watching.append(KeepStates(folder / STATES))
    if case.states:
        watching.append(FromStates(Path(case.states)))
    if case.moved:
        watching.append(Moved(each_update=bool(case.states)))
    record = RecordInProgress.begun(spec)
    prepare = partial(_prepared, case=case, spec=spec, watching=watching)
    try:
        with contextlib.suppress(DrawnError):
            train(record, folder, prepare=prepare)
    finally:
        watcher.finish(record)
    if case.plain:
        _repeat_plainly(case, watcher.training, trace).write(folder / PLAIN)


def _repeat_plainly(case: Case, training: Any, reference: Trace) -> Trace:
    """The trace of plain Keras; an error ends it, not the process.

    The workload is loaded anew: what train.py did with its own is seen too.
    """
    from ringside.verify.plain_keras import plain_keras
    from ringside_core.keras import clear_session
    from ringside_core.workloads.pipeline import make_pipeline
    from ringside_core.workloads.registry import load_workload

    spec = case.spec
    clear_session()  # as before the case itself
    try:
        own = load_workload(spec.workload, options=spec.workload_options, data_dir=spec.data_dir)
        if case.steps is not None:
            own, _ = cut(case, own, spec, training.backend)
        capabilities = training.backend.capabilities
        again = make_pipeline(training.spec, own, capabilities, training=True)
        if again.data_digest != training.train.data_digest:
            return Trace(meta={"error": OTHER_DATA})
        return plain_keras(training.spec, own, reference)
    except Exception as error:
        return Trace(meta={"error": of_users(error)})


def _prepared(
    record: RecordInProgress,
    workload: Any,
    backend: Any,
    *,
    run_dir: Path,
    listeners: Sequence[Any],
    case: Case,
    spec: RunSpec,
    watching: Sequence[Any] = (),
    epochs: int | None = None,
) -> Any:
    """`trainers.prepare.prepare` with the data and the listeners of a case.

    Args:
        record: see there.
        workload: see there.
        backend: see there.
        run_dir: see there.
        listeners: see there; those of train.py.
        case: that is trained.
        spec: that train.py was asked to train.
        watching: listeners that watch it.
        epochs: to train; None: as many as the case has.
    """
    from trainers.prepare import prepare

    if record.spec != spec:
        raise RuntimeError(f"train.py was asked to train {spec}, and would train {record.spec}")
    if not listeners:
        raise RuntimeError("train.py listens to nothing, so that its launcher learns of no update")
    if case.watch != "draws":
        workload = _tied(workload)
    if case.steps is not None:
        workload, record.spec = cut(case, workload, spec, backend)
    if case.updates_per_batch > 1:
        workload, record.spec = _in_slices(case.updates_per_batch, workload, record.spec)
    if epochs is not None:
        record.spec = record.spec.replace(epochs=epochs)
    return prepare(
        record,
        workload,
        backend,
        run_dir=run_dir,
        listeners=[*listeners, *watching],
        virtual_replicas=case.virtual_replicas,
        callbacks=(),  # the reference goes without the author's, so all cases do
    )


def _prepared_to_stop(
    record: RecordInProgress, workload: Any, backend: Any, *, case: Case, trace: Trace, **named: Any
) -> Any:
    """The same for the first epoch of a resumed case, which is saved; digests are noted around."""
    from ringside.verify.recorder import Digests
    from trainers.driver import Driver

    spec = case.spec.replace(save="all")
    driver = _prepared(record, workload, backend, case=case, spec=spec, epochs=1, **named)
    noted = trace.meta["around_saving"] = []
    first, last = Digests(noted), Digests(noted, named["run_dir"] / "checkpoint.npz")
    return Driver(driver.training, driver.record, [first, *driver.listeners, last])


def _tied(workload: Any) -> Any:
    """The workload whose model draws random numbers by example, so that arms draw the same."""
    from ringside.verify.example_random import tie_to_examples
    from ringside_core.keras import optimizers_of, tf, updates_made
    from trainers.ledger import current_ids

    build = workload.model

    def model() -> Any:
        built = build()
        workload.check_model(built)  # what makes weights only when it is called does so untied

        def step() -> Any:
            return updates_made(built) if optimizers_of(built) else tf.constant(0, tf.int64)

        tie_to_examples(built, current_ids, step)
        return built

    return dataclasses.replace(workload, model=model)


def cut(case: Case, workload: Any, spec: RunSpec, backend: Any) -> tuple[Any, RunSpec]:
    """The workload with only the data that are watched, and the run over them."""
    from ringside.verify.states import updates_to_keep
    from ringside_core.workloads.pipeline import make_pipeline

    assert case.steps is not None
    watched = case.steps
    if case.keep_states or case.states:
        watched = updates_to_keep(workload, watched)
    kept: dict[str, Any] = {}
    for split, steps in (("train", watched), ("validation", 6)):
        # Cut after the filter, because what it drops cannot be watched.
        source = make_pipeline(
            spec, workload, backend.capabilities, training=split == "train"
        ).prepared
        count = examples_to_watch(
            source.num_examples, global_batch=spec.global_batch, steps=steps, tail=case.tail
        )
        if getattr(workload, split).drops_rest:  # its step may need whole batches
            count -= count % spec.global_batch if count > spec.global_batch else 0
        kept[split] = source.first(count)
    per_epoch = spec.batch_plan.steps_per_epoch(kept["train"].num_examples)
    if (asked := kept["train"].steps_per_epoch) is not None:
        per_epoch = max(1, min(asked, watched // 2))
        kept["train"] = dataclasses.replace(kept["train"], steps_per_epoch=per_epoch)
    workload = dataclasses.replace(workload, **kept)
    return workload, spec.replace(
        epochs=max(1, -(-watched // per_epoch)),
        pipeline=spec.pipeline.replace(filter=None),
    )


def _in_slices(slices: int, workload: Any, spec: RunSpec) -> tuple[Any, RunSpec]:
    """The same data with a smaller global batch, at the learning rate of the larger one."""
    if workload.reference_batch is not None:  # a rule divides the batch by it
        smaller = workload.reference_batch / slices
        workload = dataclasses.replace(workload, reference_batch=smaller)
    if (asked := workload.train.steps_per_epoch) is not None:
        train = dataclasses.replace(workload.train, steps_per_epoch=asked * slices)
        workload = dataclasses.replace(workload, train=train)
    return workload, spec.replace(global_batch=spec.global_batch // slices)


def inspect_workload(request: Request, backend: Any, *, not_in_float64: str = "") -> dict[str, Any]:
    """What of the workload cannot be compared without care, and the digest of all its data.

    Args:
        request: of the serial run.
        backend: started.
        not_in_float64: why it could not be trained so; empty: this is found out.
    """
    from ringside_core.keras import tf

    data_digest, true_examples = "", False
    by_design: tuple[ByDesign, ...] = ()
    obstacles: tuple[str, ...] = ()
    try:
        # The digest is of all data, in the precision of the run: data may depend on it.
        _, pipeline = _workload_in(request.precision, request, backend)
        data_digest = pipeline.data_digest
        if not not_in_float64:
            found = _inspected("float64", request, backend)
            if not found.runs and names_a_type(found.obstacles[0]):
                not_in_float64 = found.obstacles[0]
        if not_in_float64:
            if request.precision == "float64" or _bits(request, backend) < 32:
                raise RefusalError(
                    "A model of 16 bits, or a run in float64, must be able to run in float64.",
                    received=not_in_float64,
                    advice="Find what names float32, and let it follow its input's type.",
                )
            found = _inspected("float32", request, backend)
        by_design, obstacles = found.by_design, found.obstacles
        true_examples = found.true_examples
    except RefusalError as error:
        obstacles = (str(error),)
    return {
        "by_design": [one.model_dump() for one in by_design],
        "obstacles": list(obstacles),
        "true_examples": true_examples,
        "not_in_float64": not_in_float64,
        "data_digest": data_digest,
        "on_gpus": bool(tf.config.list_physical_devices("GPU")),
    }


def _inspected(precision: Precision, request: Request, backend: Any) -> Any:
    """The inspection of the model in a precision."""
    from ringside.verify.inspection import inspect_model
    from ringside.verify.slices import Inspection
    from ringside_core.keras import tf
    from trainers.whole_batch import runs_in_one_pass

    try:
        workload, pipeline = _workload_in(precision, request, backend)
        x, y, *others = next(iter(pipeline.dataset(InputShard())))
        again = next(iter(pipeline.dataset(InputShard())))
    except Exception as error:  # of the user's code; a script makes its model when it is loaded
        if precision == request.precision:
            raise
        why = error.received if isinstance(error, RefusalError) else in_one_line(error)
        told = f"the workload cannot be loaded in {precision}: {why}"
        return Inspection((), (told,), (), (), runs=False)
    for one, other in zip(tf.nest.flatten((x, y, *others)), tf.nest.flatten(again), strict=True):
        if not np.array_equal(one.numpy(), other.numpy()):
            raise RefusalError(
                "The data must be the same when they are read again.",
                received="another first batch at the second reading",
                advice="Take chance out of `preprocess`, or tie it to the example.",
            )
    one_pass = runs_in_one_pass(request.cases[0].spec)
    return inspect_model(workload, batch=(x, y), replicas=request.inspect, one_pass=one_pass)


def _bits(request: Request, backend: Any) -> int:
    """In how many the model computes as it is run."""
    from ringside_core.keras import lowest_bits

    workload, _ = _workload_in(request.precision, request, backend)
    return lowest_bits(workload.build_model())


def _workload_in(precision: Precision, request: Request, backend: Any) -> tuple[Any, Any]:
    """The workload in a precision, and the pipeline of its training split."""
    from ringside_core.keras import set_floatx, tf
    from ringside_core.workloads.pipeline import make_pipeline
    from ringside_core.workloads.registry import load_workload

    spec = request.cases[0].spec.replace(precision=precision)
    set_floatx(precision, spec.policy)
    tf.keras.utils.set_random_seed(spec.seed)
    workload = load_workload(spec.workload, options=spec.workload_options, data_dir=spec.data_dir)
    return workload, make_pipeline(spec, workload, backend.capabilities, training=True)
