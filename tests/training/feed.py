"""A training pipeline over an author's data, and what it feeds."""

from collections.abc import Iterator
from typing import Any

from ringside_core.specs import BatchPlan, InputShard, PipelineOptions
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import as_source

BATCH, SEED = 6, 3


def pipeline(data: Any, replicas: int = 1, **options: Any) -> Pipeline:
    """A training pipeline over a data set or a Sequence."""
    return Pipeline(
        source=as_source(data, what="data"),
        preprocess=None,
        options=PipelineOptions(**options),
        plan=BatchPlan(global_batch=BATCH, num_replicas=replicas),
        training=True,
        synchronous=True,
        seed=SEED,
    )


def rows_fed(
    pipe: Pipeline, readers: int = 1, epochs: int = 2, **begin: int
) -> Iterator[tuple[tuple[int, int], Any, Any]]:
    """((epoch, id), x, y) of each true example, reader by reader, in the order of each."""
    per_epoch = pipe.shares.steps_per_epoch(readers) * (pipe.plan.num_replicas // readers)
    for index in range(readers):
        shard = InputShard(index=index, count=readers)
        taken = pipe.dataset(shard, **begin).take(per_epoch * epochs)
        for number, (x, y, _, _, ids) in enumerate(taken.as_numpy_iterator()):
            epoch = begin.get("first_epoch", 0) + number // per_epoch
            for row, example in enumerate(ids):
                if example >= 0:
                    yield (epoch, int(example)), x[row], y[row]
