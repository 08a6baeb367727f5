"""A run that is asked to end early saves, says `preempted`, and goes on as if nothing had been."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import execute, make_plan
from launch.attempts import Attempts, attempt
from launch.interrupts import Interrupts
from ringside_core.specs import AUTO, Execution, PreemptedError, RefusalError, RunSpec, Topology
from tests.contract.cases import GLOBAL_BATCH, NUM_TRAIN
from tests.contract.test_contract import load_weights
from tests.nightly import nightly
from tests.training.momentum import OnceDone, spec_of, train_serial
from trainers import checkpoint

CLOSE = 1e-12
pytestmark = pytest.mark.usefixtures("warm")


@pytest.mark.parametrize(
    ("after", "number", "where"),
    [
        (2, signal.SIGTERM, "SIGTERM after update 2 of this run"),
        (4, signal.SIGUSR1, "SIGUSR1 after epoch 1"),
        (8, signal.SIGTERM, ""),
    ],
)
def test_a_signal_saves_and_ends(tmp_path: Path, after: int, number: int, where: str) -> None:
    """In the middle of an epoch, at its end; a training that is over has nothing left to end.

    The weights are those of the unbroken run, bit by bit, and the handlers are those of before.
    """
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)]
    _, weights = train_serial(tmp_path / "whole", save="record")

    stop, said = OnceDone(after, lambda: os.kill(os.getpid(), number)), ""
    try:
        train_serial(tmp_path / "run", listeners=[stop])
    except PreemptedError as error:
        said = str(error)

    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)] == before
    assert said == (f"ended by {where}; saved in checkpoint.npz" if where else "")
    if not where:
        return
    resumed, again = train_serial(tmp_path / "run", resume_from=AUTO)
    np.testing.assert_equal(weights, again)
    assert resumed.epochs[0].resumed_examples == (12 if "update" in where else 0)


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damaged: int) -> None:
    """The one before it is taken, and that is said; without a whole one nothing begins."""
    _, weights = train_serial(tmp_path / "whole", save="record")
    train_serial(tmp_path, stop_after=7, checkpoint_steps=1)
    for name in (checkpoint.NEWEST, checkpoint.BEFORE)[:damaged]:
        content = bytearray((tmp_path / name).read_bytes())
        content[len(content) // 2] ^= 255
        (tmp_path / name).write_bytes(content[: len(content) - 100])
    if damaged == 2:
        with pytest.raises(RefusalError, match=r"checkpoint.npz is damaged .* Remove them from"):
            train_serial(tmp_path, resume_from=AUTO)
        return

    resumed, again = train_serial(tmp_path, resume_from=AUTO)

    assert resumed.epochs[0].resumed_examples == 12  # two updates, not three
    # The damaged one is put aside: the next save would keep it instead of the whole one.
    assert (tmp_path / checkpoint.DAMAGED).exists()
    assert checkpoint.read(tmp_path / checkpoint.BEFORE)[1].epochs_done == 1
    np.testing.assert_equal(weights, again)


def test_which_checkpoints_are_kept(tmp_path: Path) -> None:
    """The newest, the one before it, and that of the smallest validation loss, over a restart."""
    train_serial(tmp_path, epochs=4, stop_after=9, checkpoint_steps=1)
    kept, _ = train_serial(tmp_path, epochs=4, resume_from=AUTO)

    losses = [epoch.validation["loss"] for epoch in kept.epochs]
    newest, before = (
        checkpoint.read(tmp_path / name)[1] for name in (checkpoint.NEWEST, checkpoint.BEFORE)
    )
    assert (newest.epochs_done, before.epochs_done) == (4, 3)
    with np.load(tmp_path / checkpoint.BEST) as best:
        assert best["validation_loss"] <= min(losses)


def attempts_of(
    run_dir: Path, spec: RunSpec, arms: list[dict[str, Any]], orders: list[dict[str, Any]]
) -> tuple[Execution, Attempts]:
    """Run a spec in fresh processes: attempt k under arm k, in which order k happens."""
    count = iter(range(len(arms)))
    spec = spec.replace(workload="tests.training.momentum:broken_off")

    def start(spec: RunSpec, interrupts: Interrupts) -> Execution:
        number = next(count)
        spec = spec.replace(**arms[number], workload_options=orders[number])
        return execute(make_plan(spec, run_dir=run_dir), interrupts=interrupts)

    return attempt(spec, run_dir, start, restarts=len(arms) - 1, say=lambda text: None)


TWO = Topology(processes_per_host=2)
HOROVOD = {"backend": "horovod", "options": {}, "topology": TWO}
WORKERS = {"backend": "multi_worker_mirrored", "options": {}, "topology": TWO}
SERIAL = {"backend": "serial", "options": {}, "topology": Topology()}


@pytest.mark.parametrize("arms", [[HOROVOD, WORKERS, SERIAL], nightly([WORKERS, HOROVOD, SERIAL])])
def test_one_training_goes_on_under_other_backends(
    tmp_path: Path, arms: list[dict[str, Any]]
) -> None:
    """Horovod ×2, then MultiWorkerMirrored ×2, then serial: three checkpoints, one training.

    The last process of the first gets SIGUSR1 in its first epoch, and that of the second dies in
    its second epoch.
    """
    spec = spec_of(checkpoint_steps=2, epochs=3, authors_batch=GLOBAL_BATCH)

    execution, made = attempts_of(tmp_path / "run", spec, arms, [{"signalled": 2}, {"dies": 7}, {}])

    assert execution.outcome.completed, f"{execution.outcome}\n" + "\n".join(execution.last_lines)
    first, second, third = made.attempts
    assert (first.outcome.kind, first.outcome.exit_code) == ("preempted", 75), first.outcome
    # To the second update; then to the third of the second epoch, of which two were saved.
    assert (first.updates, first.lost) == (2, 0)
    assert second.outcome.kind == "failed", second.outcome
    assert second.lost is not None
    # The launcher may not have heard of the update in which the process died.
    assert (second.updates - second.lost, second.lost) in ((4, 0), (4, 1))
    assert (third.updates, third.lost) == (6, None)
    written = (tmp_path / "run" / "attempts.json").read_text()
    assert Attempts.from_json(written, origin="attempts.json") == made
    kept = [one.name for one in sorted((tmp_path / "run" / "attempts").iterdir())]
    assert kept == ["1", "2"]
    records = sorted((tmp_path / "run" / "attempts" / "1" / "records").glob("*.json"))
    assert len(records) == 2
    (record,) = execution.records
    assert [epoch.resumed_examples for epoch in record.epochs] == [2 * GLOBAL_BATCH, 0]
    unbroken, weights = train_serial(tmp_path / "whole", save="record", epochs=3)
    for found, whole in zip(record.epochs, unbroken.epochs[1:], strict=True):
        assert found.ledger == whole.ledger
        assert found.ledger is not None
        assert found.ledger.rows == NUM_TRAIN
        assert found.train == pytest.approx(whole.train, rel=1e-10)
    for one, other in zip(weights, load_weights(tmp_path / "run" / "model.keras"), strict=True):
        np.testing.assert_allclose(one, other, rtol=CLOSE, atol=CLOSE)
