"""Runs that leave something out, or make several updates in one call: nonsense is refused."""

import functools

import pytest

from ringside_core.specs import RefusalError
from tests.unit.stats.factory import spec_of

spec = functools.partial(spec_of, save="record")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (("mirrored", 1), "one replica, which has no other"),
        (("parameter_server", 2), "an update of their own"),
    ],
    ids=["one replica", "asynchronous"],
)
def test_a_reduction_that_there_is_not_cannot_be_left_out(
    made: tuple[str, int], words: str
) -> None:
    """The message says what there is instead."""
    with pytest.raises(RefusalError, match=words):
        spec(*made, ablation="no_reduction")
    assert spec("mirrored", 2, ablation="no_reduction").ablation == "no_reduction"


def test_several_asynchronous_workers_make_one_update_at_a_time() -> None:
    """Otherwise a worker's share of an epoch could end inside an execution."""
    with pytest.raises(RefusalError, match="steps_per_execution=5, 2 workers"):
        spec("parameter_server", 2, steps_per_execution=5)
    assert spec("parameter_server", 1, steps_per_execution=5).steps_per_execution == 5
    assert spec("horovod", 2, steps_per_execution=5).steps_per_execution == 5
    with pytest.raises(RefusalError, match="Keras 3 makes one update in each execution"):
        spec("mirrored", 2, steps_per_execution=5, keras=3)


def test_independent_replicas_train_no_model() -> None:
    """So no command launches them, and a comparison has them only beside its arms."""
    with pytest.raises(RefusalError, match="must train one model"):
        spec("independent", 2)
    assert spec("independent", 2, ablation="no_reduction").topology.num_processes == 2


def test_metrics_of_each_step_need_steps_that_all_make_together() -> None:
    """Workers of parameter servers have none."""
    with pytest.raises(RefusalError, match="metrics=each_step under parameter_server"):
        spec("parameter_server", 2, metrics="each_step")
    assert spec("mirrored", 2, metrics="each_step").merges_each_step


@pytest.mark.parametrize(
    ("backend", "keras", "each_step"),
    [("mirrored", 2, True), ("multi_worker_mirrored", 2, True), ("mirrored", 3, False),
     ("horovod", 2, False), ("parameter_server", 2, False)],
)  # fmt: skip
def test_metrics_are_merged_when_keras_own_fit_does(
    backend: str, keras: int, each_step: bool
) -> None:
    """Unless an arm says otherwise."""
    assert spec(backend, 2, keras=keras).merges_each_step == each_step
    assert not spec(backend, 2, metrics="each_epoch").merges_each_step


def test_a_slow_worker_is_a_process_of_its_own() -> None:
    """Replicas within one process cannot be slowed one by one; one replica alone has no other."""
    with pytest.raises(RefusalError, match=r"slow_worker=0\.33 under mirrored"):
        spec("mirrored", 2, slow_worker=0.33)
    assert spec("horovod", 2, slow_worker=0.33).slow_worker == 0.33
    assert spec("mirrored", 1, slow_worker=0.33).slow_worker == 0.33
    with pytest.raises(RefusalError):
        spec("horovod", 2, slow_worker=1.0)
