"""Started in place of Ringside's train.py: what an epoch, evaluation and prediction come to."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ringside_core.specs import RunSpec
from tests.training.answering import Answer, answering


def answer(spec: RunSpec, backend: Any, run_dir: Path) -> Iterator[Answer]:
    """Weights, metrics and predictions of each workload at a size of its own."""
    from ringside_core.keras import tf
    from ringside_core.workloads.pipeline import make_pipeline
    from tests.training.exact.epoch import still, trained_metrics
    from tests.training.exact.models import SIZES, WORKLOADS
    from trainers.build import build
    from trainers.evaluate import Evaluation
    from trainers.predict import Prediction

    del run_dir
    # Tails are cut alike for every model: test_evaluate.py asks each of them for both sizes.
    for (name, workload_of), size in zip(WORKLOADS.items(), SIZES, strict=True):
        workload = dataclasses.replace(workload_of(size), optimizer=still)
        model = build(spec, workload, backend, steps_per_epoch=1)
        pipeline = make_pipeline(spec, workload, backend.capabilities, training=False)
        evaluate = Evaluation(model, workload, backend, pipeline)
        trained = trained_metrics(spec, workload, backend, model)
        evaluate()
        told: list[None] = []
        backend.tell_steps(partial(told.append, None))
        values, counted = evaluate()  # the second time counts from zero
        values["steps told"] = len(told)
        predict = Prediction(model, backend, pipeline, like=evaluate.predictions)
        predictions = tf.nest.flatten(predict())
        values |= {f"train {key}": value for key, value in trained.items()}
        values["counted"] = counted
        yield {f"{name} {key}": value for key, value in values.items()}
        for kind, arrays in (("weight", model.get_weights()), ("prediction", predictions)):
            yield {f"{name} {kind} {i}": array for i, array in enumerate(arrays)}


if __name__ == "__main__":
    answering(answer)
