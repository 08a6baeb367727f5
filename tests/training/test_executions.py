"""Several updates in one call, XLA, and what the clock costs: in this process."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import RecordInProgress, RefusalError, Surroundings
from ringside_core.specs.cluster import Cluster, ClusterTask
from tests.contract.cases import Case
from tests.training.momentum import STEPS, Kept, train_serial
from trainers.driver import Listener, Progress


def heard_by(run_dir: Path, **changes: Any) -> tuple[Kept, list[tuple[int, int]]]:
    """Train without a strategy; also what the launcher heard."""
    heard: list[tuple[int, int]] = []
    progress = Progress(lambda done, total: heard.append((done, total)))
    kept, _ = train_serial(run_dir, save="record", listeners=[progress], **changes)
    return kept, heard


@pytest.mark.parametrize(
    ("at_once", "heard"), [(1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [3, 4, 7, 8]), (100, [4, 8])]
)
def test_updates_are_counted_not_calls(at_once: int, heard: list[int], tmp_path: Path) -> None:
    """The last call of an epoch is cut to what is left of it."""
    result, progress = heard_by(tmp_path, steps_per_execution=at_once)

    assert progress == [(done, 2 * STEPS) for done in heard]
    for epoch in result.epochs:
        assert (epoch.steps, epoch.steps_per_time) == (STEPS, at_once)
        assert len(epoch.step_end_s) == len(heard) // 2


def test_what_listeners_take_is_noted_at_each_step(
    tmp_path: Path, records: list[RecordInProgress]
) -> None:
    """Each step takes a listener 2 ms, and one of them much longer: the median is of all steps."""

    class Slow(Listener):
        def on_step(self, done: int) -> None:
            time.sleep(0.2 if done == 3 else 0.002)  # never shorter than asked

    train_serial(tmp_path, save="record", listeners=[Slow()])

    assert 0.002 <= (records[-1].clock_s_per_step or 0) < 0.2


def test_an_epoch_goes_on_with_other_calls_than_it_began(tmp_path: Path) -> None:
    """Saved after two single updates of four; the other two are made in one call."""
    _, whole = train_serial(tmp_path / "whole", save="record", epochs=1)
    train_serial(tmp_path, stop_after=3, checkpoint_steps=2, epochs=1)
    begun: dict[str, Any] = {"epochs": 1, "resume_from": str(tmp_path / "checkpoint.npz")}

    result, weights = train_serial(tmp_path / "on", steps_per_execution=3, **begun)

    np.testing.assert_equal(weights, whole)
    (epoch,) = result.epochs
    assert (epoch.steps, len(epoch.step_end_s), epoch.resumed_examples) == (2, 1, 12)
    with pytest.raises(RefusalError, match="2 updates done, steps_per_execution=3"):
        train_serial(tmp_path / "no", steps_per_execution=3, checkpoint_steps=3, **begun)


def test_a_compiled_step_computes_the_same(tmp_path: Path) -> None:
    """XLA may add up in another order, no more."""
    _, plain = train_serial(tmp_path, save="record")

    _, compiled = train_serial(tmp_path, save="record", jit_compile=True)

    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case("mirrored", 2), "these replicas share a CPU"),
        (Case("multi_worker_mirrored", 2), "no operations of XLA on CPUs"),
        (Case("parameter_server", 1), "lie on those of the servers"),
        (Case("horovod", 1), "compiled without its operations for XLA"),
    ],
    ids=str,
)
def test_where_xla_cannot_compile_the_step_it_says_why(
    case: Case, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything is started, in every process."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    spec = case.spec("digits", jit_compile=True)
    hosts = {"worker": tuple(f"localhost:{5000 + i}" for i in range(case.replicas))}
    if case.backend == "parameter_server":
        hosts |= {"chief": ("localhost:4000",), "ps": ("localhost:4001",)}
    task = ClusterTask(cluster=Cluster(**hosts), type="worker", index=0)
    place = Surroundings(kind="tf_config", size=case.replicas, task=task)
    alone = case.backend in ("mirrored", "horovod")

    with pytest.raises(RefusalError, match=words):
        make_backend(spec, Surroundings() if alone else place)
