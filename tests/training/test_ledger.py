"""The sample ledger: what real pipelines and trainings feed, counted again in plain Python."""

import dataclasses
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import Site, execute, make_plan
from ringside.verify.checks import ledger_verdict
from ringside_core.keras import tf
from ringside_core.specs import InputShard, RefusalError, Topology
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import ArraySource, StreamSource
from tests.contract.linear import linear
from tests.independent import splitmix64
from tests.nightly import daily
from tests.training.misfed import SKIPPED, TWICE, feed_honestly, feed_twice, skip_one
from tests.training.momentum import planned, spec_of, train_serial
from tests.training.test_pipeline import examples, fed, pipeline, records
from trainers.ledger import (
    LOOKED_UP_EXAMPLES,
    FedTable,
    Ledger,
    LedgerError,
    digest,
    fed_ids,
    tagged,
)

SIZES = [1, 2, 3, 7, 1797]
SHARDS = [1, 2, 3, 4]
pytestmark = pytest.mark.usefixtures("warm")


def split(count: int, files: int) -> tuple[int, ...]:
    """Sizes of so many files, as equal as can be."""
    return tuple(count // files + (index < count % files) for index in range(files))


@pytest.mark.parametrize(
    ("shards", "count"), daily(product(SHARDS, SIZES), lambda one: one[0] == 3 or one[1] == 7)
)
@pytest.mark.parametrize("how", ["cached", "stream", "data", "file", "off"])
def test_every_id_once(tmp_path: Path, how: str, shards: int, count: int) -> None:
    """Whoever shares the data out, an epoch holds each id once; without sharing, once a shard."""
    source = examples(count) if how == "cached" else records(tmp_path, split(count, 5))
    policy = "batch" if how in ("cached", "stream") else how
    batch = 120 if count > 100 else 12
    pipe = pipeline(source, batch, shards, cache=how == "cached", shard=policy)

    times = Counter(int(i) for step in fed(pipe, shards) for ids in step for i in ids)

    assert times == dict.fromkeys(range(count), shards if how == "off" else 1)


@pytest.mark.parametrize("shards", [2, 3, 4])
def test_too_few_files_lose_nothing_in_silence(tmp_path: Path, shards: int) -> None:
    """A reader without a file would leave nothing out, but who asks for it is told."""
    source = records(tmp_path, (7,))

    with pytest.raises(RefusalError, match=f"1 files, {shards} readers"):
        fed(pipeline(source, 12, shards, cache=False, shard="file"), shards)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("examples", [None, 50, LOOKED_UP_EXAMPLES + 1])
def test_the_digest_is_the_one_of_pythons_integers(seed: int, examples: int | None) -> None:
    """Count, sum, hash and order of any ids, computed or looked up; padding is left out."""
    ids = np.random.default_rng(seed).integers(-1, 50, 40)
    ledger = Ledger(examples)

    order = 0
    for number, part in enumerate(np.split(ids, 4)):
        ledger.update_state(tf.constant(part), number)
        order += (2 * number + 1) * sum(splitmix64(int(i)) for i in part if i >= 0)

    true = [int(i) for i in ids if i >= 0]
    found = digest(ledger.result().numpy())
    assert (found.count, found.id_sum) == (len(true), sum(true))
    assert found.id_hash == f"{sum(map(splitmix64, true)) % 2**64:016x}"
    assert int(ledger.result().numpy()[3]) % 2**64 == order % 2**64


@pytest.mark.parametrize("count", [1, 4, 9, 10])
def test_an_array_source_is_cut_to_its_first(count: int) -> None:
    """Every array of the nest keeps its beginning."""
    x, y = examples(10)

    cut = ArraySource({"x": x, "y": y}).first(count)

    assert cut.num_examples == count
    np.testing.assert_array_equal(cut.arrays["x"], x[:count])
    np.testing.assert_array_equal(cut.arrays["y"], y[:count])


@pytest.mark.parametrize(
    ("counts", "count", "expected"),
    [
        ((4, 4, 2), 5, (2, 2, 1)),
        ((4, 4, 2), 10, (4, 4, 2)),
        ((5, 3, 2), 7, (4, 2, 1)),  # 3.5, 2.1 and 1.4
        ((1, 1, 1, 1), 2, (1, 1, 0, 0)),
        ((0, 9), 3, (0, 3)),
    ],
)
def test_a_stream_is_cut_in_each_part(
    tmp_path: Path, counts: tuple[int, ...], count: int, expected: tuple[int, ...]
) -> None:
    """Each file keeps its beginning, in proportion, and is told to hold as many as it gives."""
    source = records(tmp_path, counts)
    starts = np.cumsum([0, *counts[:-1]])

    cut = source.first(count)

    assert cut.parts == source.parts
    assert cut.lengths == expected
    assert cut.num_examples == count
    kept = [float(x[0]) for x in cut.in_memory.arrays[0]]
    assert kept == [s + i for s, n in zip(starts, expected, strict=True) for i in range(n)]


@pytest.mark.parametrize("count", [0, 11])
def test_a_source_cannot_be_cut_to_nothing_or_more(tmp_path: Path, count: int) -> None:
    """One message for both kinds."""
    for source in (ArraySource(examples(10)), records(tmp_path, (6, 4))):
        assert isinstance(source, ArraySource | StreamSource)
        with pytest.raises(RefusalError, match=f"{count} of 10"):
            source.first(count)


@pytest.mark.parametrize(("replicas", "readers"), [(1, 1), (2, 1), (4, 2), (3, 3)])
def test_the_list_of_several_readers(replicas: int, readers: int) -> None:
    """Tagged batches of all readers fill the table as the plan cuts global batches."""
    pipe = pipeline(examples(20), 12, replicas, shuffle=False)
    each = replicas // readers
    table = FedTable(steps=2, replicas=replicas, batch=12 // replicas, per_reader=each)

    for index in range(readers):
        shard = InputShard(index=index, count=readers)
        # From the second step of the first epoch: the first step comes from the second epoch.
        batches = pipe.dataset(shard, first_step=1)
        for batch, tag in tagged(batches, shard, per_epoch=2 * each, first=each).take(2 * each):
            table.update_state(batch[4], tag)

    expected = np.array([*range(20), *[-1] * 4]).reshape(2, replicas, 12 // replicas)
    np.testing.assert_array_equal(fed_ids(table.result().numpy()), expected)


def test_a_place_that_is_written_twice_is_no_list() -> None:
    """Nobody knows by what: it is an error, never a wrong id. What is not written is -2."""
    table = FedTable(steps=1, replicas=2, batch=2, per_reader=1)
    table.update_state(tf.constant([3, -1], tf.int64), tf.constant([1, 0], tf.int64))
    once = fed_ids(table.result().numpy())

    table.update_state(tf.constant([4, 5], tf.int64), tf.constant([1, 0], tf.int64))

    assert once.tolist() == [[[-2, -2], [3, -1]]]
    with pytest.raises(LedgerError, match="replica 1 was fed two batches as that of step 1"):
        fed_ids(table.result().numpy())


def test_a_serial_run_lists_what_was_planned(tmp_path: Path) -> None:
    """In the result and on disk, each epoch as its shuffle says; records know the validation."""
    result, _ = train_serial(tmp_path, save="record")

    for epoch in range(2):
        stored = np.load(tmp_path / "ledger" / f"epoch-{epoch + 1:04d}.npz")["fed"]
        np.testing.assert_array_equal(stored, planned(epoch, 1))
        np.testing.assert_array_equal(result.fed[epoch], stored)
        validation = result.epochs[epoch].validation_ledger
        assert validation is not None
        assert (validation.count, validation.id_sum) == (7, sum(range(7)))
        assert validation.id_hash == f"{sum(map(splitmix64, range(7))) % 2**64:016x}"
        assert result.epochs[epoch].ledger_here == (result.epochs[epoch].ledger,)


def test_a_validation_that_loses_an_example_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipeline gives one of 7 as padding: the epoch ends with an error, not with a number."""
    honest = Pipeline.dataset

    def losing(self: Pipeline, *place: Any, **begin: Any) -> Any:
        batches = honest(self, *place, **begin)
        if self.training:
            return batches
        lost = tf.constant(-1, tf.int64)
        return batches.map(lambda *batch: (*batch[:4], tf.where(batch[4] == 3, lost, batch[4])))

    monkeypatch.setattr(Pipeline, "dataset", losing)

    with pytest.raises(LedgerError, match=r"validation of epoch 1 was fed 6 .* its plan holds 7"):
        train_serial(tmp_path, save="record")


def test_without_a_wish_nothing_is_listed(tmp_path: Path) -> None:
    """The digest alone is the default."""
    result, _ = train_serial(tmp_path, save="record", ledger="digest")

    assert result.fed == []
    assert not (tmp_path / "ledger").exists()


def test_a_filtered_run_lists_what_remains(tmp_path: Path) -> None:
    """Ids count what the filter keeps."""
    (tmp_path / "keep.py").write_text("def positive(x, y):\n    return x[0] > 0\n")
    kept = int((linear().train.arrays[0][:, 0] > 0).sum())

    result, _ = train_serial(
        tmp_path, save="record", pipeline={"filter": f"{tmp_path}/keep.py:positive"}
    )

    assert 1 < kept < 20
    for epoch in result.fed:
        assert sorted(i for i in epoch.ravel() if i >= 0) == list(range(kept))
        assert ledger_verdict(epoch, kept).passed


def test_a_double_read_is_found_where_it_happened(tmp_path: Path) -> None:
    """A batch that comes twice: its examples are named with both steps, the lost ones too."""
    feed_twice()
    result_fed: list[np.ndarray] = []
    try:
        with pytest.raises(LedgerError, match="epoch 2 was fed 20 examples, as many as planned"):
            train_serial(tmp_path, save="record", fed=result_fed)
    finally:
        feed_honestly()

    step = TWICE - 4  # of the second epoch, whose batches begin at number 4
    plan = planned(1, 1)
    verdict = ledger_verdict(result_fed[1], 20)
    assert ledger_verdict(result_fed[0], 20).passed
    assert verdict.missing == tuple(sorted(plan[step + 1, 0].tolist()))
    assert {one.id: one.places for one in verdict.repeated} == {
        int(i): ((0, step), (0, step + 1)) for i in plan[step, 0]
    }
    assert "replica 0 in step 1, replica 0 in step 2" in verdict.finding


def test_a_skipped_batch_is_found(tmp_path: Path) -> None:
    """The last, short batch is lost and the next epoch's first comes in its place."""
    skip_one()
    result_fed: list[np.ndarray] = []
    try:
        with pytest.raises(LedgerError, match="was fed 24 examples, its plan holds 20"):
            train_serial(tmp_path, save="record", fed=result_fed)
    finally:
        feed_honestly()

    (first,) = result_fed
    lost = Counter(planned(0, 1)[SKIPPED].ravel().tolist())
    del lost[-1]
    verdict = ledger_verdict(first, 20)
    again = set(planned(1, 1)[0].ravel().tolist())
    assert verdict.missing == tuple(sorted(set(lost) - again))
    assert {one.id for one in verdict.repeated} == again - set(lost)
    assert all(one.places[-1] == (0, SKIPPED) for one in verdict.repeated)


def test_another_shuffle_in_one_epoch_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each example once, but in the order of another seed: only the order tells."""
    honest = Pipeline._order

    def reseeded(self: Pipeline, positions: Any, epoch: Any, source: Any) -> Any:
        other = dataclasses.replace(self, seed=self.seed + 1)
        wrong, right = (honest(one, positions, epoch, source) for one in (other, self))
        return tf.where(epoch == 1, wrong, right)

    monkeypatch.setattr(Pipeline, "_order", reseeded)

    with pytest.raises(LedgerError, match=r"epoch 2 was fed .* in another order than seed 5 gives"):
        train_serial(tmp_path, save="record", ledger="digest")


def test_a_double_read_of_a_mirrored_replica_is_found(tmp_path: Path) -> None:
    """The one reader of two replicas gives the second one the first one's batch: the run fails."""
    spec = spec_of(
        backend="mirrored",
        topology=Topology(replicas_per_process=2),
        workload_options={"twice": True},
        epochs=1,
    )
    site = dataclasses.replace(Site.here(), root=str(Path(__file__).parent / "broken"))

    execution = execute(make_plan(spec, run_dir=tmp_path / "run", site=site), deadline_s=120.0)

    outcome = execution.outcome
    assert (outcome.kind, outcome.error_class) == ("failed", "LedgerError"), outcome
    assert "epoch 1 was fed 20 examples, as many as planned, but not each" in outcome.reason
    found = np.load(tmp_path / "run" / "ledger" / "epoch-0001.npz")["fed"]
    step = TWICE // 2
    plan = planned(0, 2)
    verdict = ledger_verdict(found, 20)
    assert verdict.missing == tuple(sorted(plan[step, 1].tolist()))
    assert {one.id: one.places for one in verdict.repeated} == {
        int(i): ((0, step), (1, step)) for i in plan[step, 0]
    }
    assert "replica 0 in step 3, replica 1 in step 3" in verdict.finding
