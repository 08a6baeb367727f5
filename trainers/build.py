"""The compiled model and the pipelines of a run: the same under every backend."""

import hashlib
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.learning_rate import apply_rule


def make_pipeline(
    spec: RunSpec, workload: Workload, backend: Backend, *, training: bool
) -> Pipeline:
    """The pipeline of the training or the validation split."""
    return Pipeline(
        source=workload.train if training else workload.validation,
        preprocess=workload.preprocess,
        options=spec.pipeline,
        plan=spec.batch_plan,
        training=training,
        synchronous=backend.capabilities.synchronous,
        seed=spec.seed,
        class_weight=workload.class_weight,
    )


def build(spec: RunSpec, workload: Workload, backend: Backend, steps_per_epoch: int) -> Any:
    """The compiled model, with the same initial weights under every backend and in every process.

    The weights are drawn by a model built outside of any strategy: within a strategy the random
    operations would be numbered otherwise.
    """
    tf.keras.utils.set_random_seed(spec.seed)
    weights = workload.build_model().get_weights()
    tf.keras.backend.clear_session()  # so that names do not depend on what was built before
    tf.keras.utils.set_random_seed(spec.seed)
    # Replicas in one process draw dropout masks of their own; those in several would draw the same.
    tf.random.set_seed(spec.seed + backend.rank)
    with backend.scope():
        model = workload.build_model()
        backend.prepare_model(model)
        model.set_weights(weights)
        optimizer = workload.optimizer()
        apply_rule(optimizer, spec, workload, steps_per_epoch)
        optimizer = backend.wrap_optimizer(optimizer)
        if spec.ablation == "no_reduction":
            backend.leave_reduction_out(optimizer)
        model.compile(
            optimizer=optimizer,
            loss=workload.loss,
            loss_weights=workload.loss_weights,
            weighted_metrics=workload.metrics(),
            steps_per_execution=spec.steps_per_execution,
            jit_compile=spec.jit_compile or None,  # None: what Keras does by itself
        )
    return model


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
    for value in model.get_weights():
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()
