"""What will be done with a workload, before anything long starts. A process of its own answers.

python -m ringside.verify.preview spec.json answer.json
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backends import make_backend
from ringside.verify.request import Case, Request
from ringside.verify.task import cut, inspect_workload
from ringside_core.keras import (
    has_own_step,
    has_own_test_step,
    lowest_bits,
    optimizers_of,
    set_floatx,
    weights_of,
)
from ringside_core.specs import RecordInProgress, RefusalError, RunSpec, Surroundings, write_whole
from ringside_core.users_errors import of_users
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.registry import load_workload
from ringside_core.workloads.workload import Workload
from trainers.callbacks import calling, never_called
from trainers.driver import DivergedError
from trainers.prepare import prepare
from trainers.sync_proof import NothingTrainedError
from trainers.train import train


def preview(spec: RunSpec) -> dict[str, Any]:
    """Load a workload, build its model, look at both, and try out a whole and a short batch.

    Args:
        spec: of a serial run.

    Returns:
        `examples`, `validation`: how many; `updates` of an epoch; `short`: examples of its last
        batch, 0: a whole one; `weighted`: whether examples have weights; `notes`: what is done
        with the data; `model`; `by_design`, `obstacles` and `not_in_float64` as in an
        inspection.
    """
    set_floatx(spec.precision, spec.policy)
    workload = load_workload(spec.workload, options=spec.workload_options, data_dir=spec.data_dir)
    backend = make_backend(spec, Surroundings())
    train, held_out = (
        make_pipeline(spec, workload, backend.capabilities, training=training)
        for training in (True, False)
    )
    found: dict[str, Any] = {
        "examples": train.num_examples,
        "validation": held_out.num_examples if workload.validates else 0,
        "updates": train.shares.steps_per_epoch(1),
        "short": train.shares.last_batch,
        "weighted": train.weighted,
        "notes": list(train.prepared.said),
        "model": _model(workload),
    }
    case = Case(name="preview", spec=spec)
    request = Request(cases=(case,), inspect=(2,), precision=spec.precision)
    inspected = inspect_workload(request, backend)
    told = {name: inspected[name] for name in ("by_design", "obstacles", "not_in_float64")}
    set_floatx(spec.precision, spec.policy)  # the inspection was in float64
    short = bool(found["short"] or found["validation"] % spec.global_batch)
    ends = _untrainable(spec, workload, found["model"], short)
    others = [one for one in told["obstacles"] if not any(one in end for end in ends)]
    told["obstacles"] = [*ends, *others]
    return {**found, **told}


def _untrainable(
    spec: RunSpec, workload: Workload, model: dict[str, Any], short: bool
) -> list[str]:
    """What ends a training of a whole and a short batch, and its evaluation.

    Args:
        spec: of the run.
        workload: that is trained.
        model: see `preview`.
        short: whether an epoch or an evaluation of all data has a short batch.
    """
    try:
        calling(workload.new_callbacks())  # some are refused; the training below goes without
    except RefusalError as error:
        return [_why(error)]
    try:
        _try(spec, workload, tail=None)
    except (NothingTrainedError, DivergedError) as error:
        # A loss scale begins so high that the first updates may be skipped.
        if isinstance(error, NothingTrainedError) and model["bits"] < 32:
            return []
        beside = "; a certificate goes without its callbacks" if model["callbacks"] else ""
        return [f"{error}{beside}"]
    except Exception as error:  # of the user's code, of Keras about it, or refused
        why = _why(error)
    else:
        return []
    if not short:
        try:
            _try(spec, workload, tail=spec.global_batch)
        except Exception as error:
            return [_why(error)]
        return [
            "these data, in whole batches, can be trained, but a certificate is of a short last "
            f"batch too: {why}"
        ]
    return [why]


def _why(error: Exception) -> str:
    return f"it cannot be trained: {error if isinstance(error, RefusalError) else of_users(error)}"


def _try(spec: RunSpec, workload: Workload, *, tail: int | None) -> None:
    """Train two updates in each of two epochs, and evaluate.

    Args:
        spec: of the run.
        workload: that is trained.
        tail: see Case.
    """
    case = Case(name="preview", spec=spec, steps=4, tail=tail)
    with TemporaryDirectory() as folder, make_backend(spec, Surroundings()) as backend:
        small, spec = cut(case, workload, spec, backend)
        record = RecordInProgress.begun(spec.replace(save="record"))
        train(prepare(record, small, backend, run_dir=Path(folder)))


def _model(workload: Workload) -> dict[str, Any]:
    """Its `kind`, `parameters`, `bits` and `own_steps`, `optimizers`, `callbacks` and `unused`.

    `warnings` are of the callbacks.
    """
    model = workload.build_model()
    given = workload.new_callbacks()
    own = {"train_step": has_own_step(model), "test_step": has_own_test_step(model)}
    optimizers = optimizers_of(model) if workload.optimizer is None else [workload.optimizer()]
    return {
        "kind": type(model).__name__,
        "parameters": sum(int(v.shape.num_elements()) for v in weights_of(model)),
        "bits": lowest_bits(model),
        "own_steps": [name for name, is_own in own.items() if is_own],
        "optimizers": [_told(one) for one in optimizers],
        "callbacks": [type(one).__name__ for one in given],
        "warnings": never_called(given) if workload.validates else (),
        "unused": _unused(model),
    }


def _unused(model: Any) -> list[str]:
    """What its author's `compile` asked for that is asked of Ringside by a flag."""
    several = int(getattr(model, "_steps_per_execution", None) or 1)
    asked = {
        f"steps_per_execution={several}": several > 1,
        "jit_compile=True": bool(getattr(model, "_jit_compile", False)),
        "run_eagerly=True": bool(getattr(model, "_run_eagerly", False)),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _told(optimizer: Any) -> str:
    inner = getattr(optimizer, "inner_optimizer", None)
    return f"{type(inner).__name__} with a loss scale" if inner else type(optimizer).__name__


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])  # those of a script will take their place
    try:
        answer = preview(RunSpec.from_json(asked.read_text(encoding="utf-8"), origin=str(asked)))
    except RefusalError as error:
        answer = {"refused": str(error)}
    write_whole(answered, json.dumps(answer))
