"""The compiled model of a run: the same under every backend.

So is a run that leaves something out, which a breakdown of a step needs (`RunSpec.ablation`).
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from backends import make_backend
from backends.base import Backend
from ringside_core.keras import (
    VERSION,
    build_optimizer,
    clear_session,
    count_draws,
    get_weights,
    has_own_test_step,
    set_schedule,
    set_weights,
    tf,
    trainable_of,
    weights_of,
    with_loss_scale,
)
from ringside_core.specs import (
    REFERENCE,
    InputShard,
    RefusalError,
    RunSpec,
    Surroundings,
    Topology,
    backend_options,
)
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.own_step import as_given, together
from trainers.own_trial import Trial, build_compiled, try_out
from trainers.rehearsal import first_examples
from trainers.whole_batch import (
    mark_alike,
    mark_losses,
    runs_in_one_pass,
    takes_true_examples,
)


def trained_on(spec: RunSpec, backend: Backend) -> Backend:
    """The backend to train on: the started one, or the serial one if the ablation says `unused`.

    The started one then keeps its threads, connections and devices, but does nothing.
    """
    if spec.ablation != "unused":
        return backend
    plain = spec.replace(
        backend=REFERENCE,
        options=backend_options(REFERENCE, {}),
        topology=Topology(),
        ablation="none",
    )
    return make_backend(plain, Surroundings())  # nothing of it needs to be started


def build(spec: RunSpec, workload: Workload, backend: Backend, steps_per_epoch: int) -> Any:
    """The compiled model, with the same initial weights under every backend and in every process.

    The weights are drawn by a model built outside of any strategy: within a strategy the random
    operations would be numbered otherwise.
    """
    tf.keras.utils.set_random_seed(spec.seed)
    plain = _plain_model(spec, workload, backend)
    weights = get_weights(plain)
    clear_session()  # so that names do not depend on what was built before
    tf.keras.utils.set_random_seed(spec.seed)
    with backend.scope():
        model = workload.build_model()
        mark_alike(model, plain)
        # Without the rank, replicas in different processes would draw the same dropout masks. Not
        # before: a script seeds its own model.
        tf.random.set_seed(spec.seed + backend.rank)
        if backend.capabilities.synchronous:  # else the workers would share the count of a server
            count_draws(model, spec.seed, backend.replica_number)
        backend.prepare_model(model)
        set_weights(model, weights)
        if workload.optimizer is None:
            check_compiled(model, spec)
            return model
        optimizer = workload.optimizer_of(model)
        apply_rule(optimizer, spec, workload, steps_per_epoch)
        optimizer = with_loss_scale(optimizer, model)
        if takes_true_examples(model):  # it combines gradients where it applies them
            compile_model(model, workload, optimizer, spec)
            return model
        optimizer = backend.wrap_optimizer(optimizer, by_tape=spec.trained_by == "loop")
        if spec.ablation == "no_reduction":
            backend.change_reduction(optimizer, lambda reduce, gradients, variables: gradients)
        compile_model(model, workload, optimizer, spec)
        # Made in the first step, they would have TensorFlow trace the step a second time.
        build_optimizer(model.optimizer, trainable_of(model))
    return model


def tried_out(
    spec: RunSpec,
    workload: Workload,
    backend: Backend,
    splits: tuple[Pipeline, Pipeline],
    model: Any,
) -> Trial | None:
    """What a trial of the author's own steps shows; None: both are Keras', and take padding.

    Args:
        spec: of the run.
        workload: of the model.
        backend: on which the model was built.
        splits: for training and for validation.
        model: what `build` returned.
    """
    if not (takes_true_examples(model) or has_own_test_step(model)):
        return None
    train, validation = splits
    batch = first_examples(train, train.plan.per_replica_batch)
    held_out = batch
    if workload.validates and has_own_test_step(model):
        held_out = first_examples(validation, validation.plan.per_replica_batch)
    plain = workload.build_model()
    mark_alike(plain, model)
    if len(weights_of(plain)) != len(weights_of(model)):
        raise RefusalError(
            "A model must have all its weights before its first step.",
            received=f"{model.name}, of whose {len(weights_of(plain))} weights "
            f"{len(weights_of(model))} are made under {backend.name}",
            advice="Call its layers once in its constructor, or in its `call`.",
        )
    if workload.optimizer is not None:
        optimizer = with_loss_scale(workload.optimizer_of(plain), plain)
        compile_model(plain, workload, optimizer, spec)
    several = backend.num_replicas > 1 and backend.capabilities.synchronous
    tf.random.set_seed(spec.seed)  # all processes must find the same
    trial = try_out(
        plain,
        batch,
        as_given(train, batch),
        as_given(validation, held_out),
        several=several,
        gathers=apart if isinstance(apart := together(backend), RefusalError) else None,
    )
    if several and trial.trained is not None:
        sums = backend.all_reduce(np.array([float(trial.sums)]), "max")
        trial = replace(trial, sums=bool(sums[0]))
    tf.random.set_seed(spec.seed + backend.rank)  # as after `build`
    with backend.scope():
        build_compiled(model, lambda: batch, as_given(train, batch) if trial.trained else None)
    return trial


def compile_model(model: Any, workload: Workload, optimizer: Any, spec: RunSpec) -> None:
    """Compile a model with a workload's loss and metrics, all of them weighted."""
    tf.keras.Model.compile(  # an author's own `compile` has other arguments, and was called
        model,
        optimizer=optimizer,
        loss=workload.loss,
        loss_weights=workload.loss_weights,
        weighted_metrics=workload.metrics(),
        steps_per_execution=spec.steps_per_execution,
        # None: what legacy Keras does by itself. Keras 3 would choose XLA on a GPU.
        jit_compile=spec.jit_compile or (None if VERSION == 2 else False),
        # An optimizer has its loss scale by now, or its author wants none.
        **({} if VERSION == 2 else {"auto_scale_loss": False}),
    )


def _plain_model(spec: RunSpec, workload: Workload, backend: Backend) -> Any:
    """The model outside of any strategy.

    Raises:
        RefusalError: it has layers that Keras would not make in the backend's scope.
    """
    model = mark_losses(workload.build_model(), workload, one_pass=runs_in_one_pass(spec))
    half = [
        one
        for one in model._flatten_layers()
        if one.compute_dtype == "float16" != one.variable_dtype
    ]
    if half and not backend.capabilities.loss_scale:
        raise RefusalError(
            f"Keras has no loss scale under {backend.name}, which mixed_float16 needs.",
            received=f"{half[0].name}, a layer of {model.name} with mixed_float16",
            advice="Use mixed_bfloat16, or another backend.",
        )
    return model


def check_compiled(model: Any, spec: RunSpec) -> None:
    """Refuse what only `Model.compile` can be told, if the author's own `compile` was called."""
    asked = {
        "steps_per_execution": spec.steps_per_execution > 1,
        "jit_compile": spec.jit_compile,
        "learning_rate_rule": spec.learning_rate_rule.rule != "none",
    }
    if any(asked.values()):
        raise RefusalError(
            "A model with a compile of its own is trained as that has made it.",
            received=f"{', '.join(n for n, on in asked.items() if on)} with {type(model).__name__}",
            advice="Leave it out.",
        )


def held(read: Callable[[InputShard], Any], num_replicas: int) -> Callable[[InputShard], Any]:
    """The same batches in every step: the first one of each replica of a reader, from memory.

    Nothing is looked up, computed or copied. Two costs of input stay in each step: one call of a
    data set's iterator (some microseconds), and what the backend does to hand a batch to its
    replicas (a strategy has iterators of its own).

    Args:
        read: input shard → batches of one replica, its reader's replicas in turn.
        num_replicas: in the whole run.
    """

    def read_held(shard: InputShard) -> Any:
        with tf.init_scope():  # a coordinator traces this for its workers
            batches = list(read(shard).take(num_replicas // shard.count))
        kept = [tf.data.Dataset.from_tensors(batch) for batch in batches]
        repeated = reduce(lambda one, other: one.concatenate(other), kept).repeat()
        options = tf.data.Options()
        options.autotune.enabled = False  # as of all input, see ringside_core/workloads/pipeline.py
        return repeated.with_options(options)

    return read_held


def apply_rule(
    optimizer: Any, spec: RunSpec, reference_batch: int | None, steps_per_epoch: int | None
) -> None:
    """Scale the optimizer's learning rate by the spec's rule, with a linear warm-up to it.

    The warm-up is a schedule that Keras knows by itself, so that a saved optimizer needs no
    Ringside to be loaded.

    Args:
        optimizer: changed in place.
        spec: holds the rule and the global batch.
        reference_batch: the batch that the rate was chosen for; None: nobody says.
        steps_per_epoch: updates in an epoch, for the length of the warm-up; None: not known.

    Raises:
        RefusalError: a rule without a reference batch, or on top of a schedule.
    """
    rule = spec.learning_rate_rule
    if rule.rule == "none":
        return
    if reference_batch is None:
        raise RefusalError(
            f"The learning-rate rule {rule.rule} needs the batch that the rate was chosen for.",
            received=f"{spec.workload} without reference_batch",
            advice="Set reference_batch in a Workload, or leave out --learning-rate-rule.",
        )
    # A new optimizer hides a schedule behind its current value; a legacy one shows it.
    scaled = getattr(optimizer, "inner_optimizer", optimizer)  # a loss scale is a wrapper
    rate = getattr(scaled, "_learning_rate", scaled.learning_rate)
    if isinstance(rate, tf.keras.optimizers.schedules.LearningRateSchedule):
        raise RefusalError(
            "A learning-rate rule needs a constant learning rate.",
            received=type(rate).__name__,
            advice="Use --learning-rate-rule none, or a constant rate.",
        )
    base = float(optimizer.learning_rate.numpy())
    scaled = base * rule.factor(global_batch=spec.global_batch, reference_batch=reference_batch)
    if rule.warmup_epochs == 0:
        optimizer.learning_rate = scaled
        return
    if steps_per_epoch is None:
        raise RefusalError(
            "A warm-up of epochs needs data whose size is known.",
            received="a data set that does not say how many batches it has",
            advice="Leave out --warmup-epochs, or give the size by assert_cardinality.",
        )
    warm_up = tf.keras.optimizers.schedules.PolynomialDecay(
        initial_learning_rate=base,
        decay_steps=rule.warmup_epochs * steps_per_epoch,
        end_learning_rate=scaled,
        power=1.0,
    )
    set_schedule(optimizer, warm_up)


def check_same_data(backend: Backend, digest_text: str) -> None:
    """Refuse processes that hold other examples, or the same in another order."""
    if not same_everywhere(backend, digest_text):
        raise RefusalError(
            "Every process must hold the same examples in the same order.",
            received="data that differ between processes",
            advice="Seed every shuffle and random split of the workload, and sort file lists.",
        )


def same_everywhere(backend: Backend, text: str) -> bool:
    """Whether every process has this text. All processes must ask, and get the same answer."""
    mine = np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], np.int64)
    differs = float((mine != backend.broadcast(mine)).any())
    return not backend.all_reduce(np.array([differs]), "max")[0]


def weights_digest(model: Any) -> str:
    """SHA-256 over all weights of this process's model, in order."""
    sha = hashlib.sha256()
    for value in get_weights(model):
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()
