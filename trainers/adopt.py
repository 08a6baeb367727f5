"""The model of a script, which its author built and compiled himself: taken, and given back."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from backends.base import Backend
from ringside_core.keras import (
    COMPILED,
    build_optimizer,
    count_draws,
    draw_as_before,
    forget_traced,
    global_seed,
    optimizers_of,
    tf,
    trainable_of,
)
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.build import check_compiled, compile_model
from trainers.own_trial import build_compiled
from trainers.rehearsal import first_examples
from trainers.whole_batch import mark_losses, runs_in_one_pass, takes_true_examples


def adopt(model: Any, spec: RunSpec, workload: Workload, backend: Backend, train: Pipeline) -> Any:
    """A model that its author built and compiled himself, made ready as by `build`.

    Its weights and what its optimizer remembers stay as they are. `given_back` undoes the rest.

    Args:
        model: of the script.
        spec: of the run.
        workload: of the model.
        backend: started.
        train: pipeline of the training split.

    Raises:
        RefusalError: it was not built in the backend's scope, or not compiled.
    """
    with backend.scope():
        if spec.learning_rate_rule.rule != "none":
            raise RefusalError(
                "A script says its learning rate itself.",
                received=f"--learning-rate-rule {spec.learning_rate_rule.rule}",
                advice="Leave it out.",
            )
        workload.check_model(model)
        # As after `Model.fit`: in files, Keras 2 would take "accuracy" for that of other labels.
        build_compiled(model, lambda: first_examples(train, 1))
        mark_losses(model, workload, one_pass=runs_in_one_pass(spec))
        tf.random.set_seed(spec.seed + backend.rank)  # see `build`
        if backend.capabilities.synchronous:  # else the workers would share the count of a server
            count_draws(model, spec.seed, backend.replica_number)
        backend.prepare_model(model)
        if workload.optimizer is None:
            check_compiled(model, spec)
            return model
        compile_model(model, workload, model.optimizer, spec)
        if not takes_true_examples(model):
            if spec.trained_by == "fit":
                backend.lend_reduction(model.optimizer)
            else:
                backend.wrap_optimizer(model.optimizer, by_tape=True)
            build_optimizer(model.optimizer, trainable_of(model))
    return model


@contextmanager
def given_back(model: Any, backend: Backend) -> Iterator[None]:
    """After this block, a model of a script is as its author compiled it, with trained weights."""
    outer = optimizers_of(model)
    inner = [getattr(one, "inner_optimizer", None) for one in outer]  # of a loss scale
    held = [model, *outer, *(one for one in inner if one is not None)]
    before = [_functions_of(one) for one in held]
    compiled = {name: vars(model)[name] for name in COMPILED if name in vars(model)}
    seed = global_seed()
    try:
        yield
    finally:
        with backend.scope():
            for one, functions in zip(held, before, strict=True):
                for name in _functions_of(one).keys() - functions.keys():
                    delattr(one, name)
                for name, function in functions.items():
                    setattr(one, name, function)
            draw_as_before(model)
            vars(model).update(compiled)  # Keras tracks what is set otherwise
            for name in set(COMPILED) - set(compiled):
                vars(model).pop(name, None)
            forget_traced(model)
        tf.random.set_seed(seed)  # what the script draws now is the same in every process


def _functions_of(held: Any) -> dict[str, Any]:
    """The functions that were set on a model or an optimizer, not on its class."""
    kinds = (FunctionType, MethodType, partial, type)
    return {name: value for name, value in vars(held).items() if isinstance(value, kinds)}
