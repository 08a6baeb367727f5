"""Nouns: immutable, JSON both ways, refusing nonsense with the rule, what came, and what to do."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from ringside_core.specs import (
    BatchPlan,
    EpochRecord,
    InputShard,
    LearningRateRule,
    Outcome,
    PipelineOptions,
    RefusalError,
    RunSpec,
    Topology,
    write_all_whole,
    write_whole,
)

TWO_PASSES = {"backward_passes_per_step": 2}


def spec(**changes: object) -> RunSpec:
    """A good spec with some fields changed."""
    fields: dict[str, object] = {
        "backend": "horovod",
        "options": {"controller": "gloo"},
        "topology": Topology(processes_per_host=2),
        "global_batch": 48,
        "epochs": 3,
    }
    return RunSpec(**{**fields, **changes})


def test_a_spec_survives_json() -> None:
    """It is read as it was written, and options keep their type."""
    original = spec()

    again = RunSpec.from_json(original.to_json())

    assert again == original
    assert type(again.options) is type(original.options)


def test_the_content_hash_names_the_content() -> None:
    """Equal specs have equal hashes; any change gives another."""
    assert spec().content_hash == spec().content_hash
    assert spec().content_hash != spec(seed=2).content_hash
    assert spec().content_hash != spec(options={"controller": "mpi"}).content_hash


def test_a_noun_cannot_be_changed() -> None:
    """Nouns are frozen."""
    with pytest.raises(Exception, match="frozen"):
        spec().epochs = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": "horovd"}, ["Did you mean 'horovod'?"]),
        ({"options": {"controler": "gloo"}}, ["Did you mean 'controller'?"]),
        ({"options": {"compression": "fp8"}}, ["compression", "'none' or 'fp16'"]),
        ({"global_batch": 49}, ["multiple", "global_batch=49, num_replicas=2", "Try 48 or 50."]),
        ({"global_batch": 1}, ["Try 2."]),
        ({"epochs": 0}, ["epochs", "greater than 0"]),
        ({"seed": 2**31}, ["seed", "2147483647"]),
        ({"learning_rate_rule": {"warmup_epochs": 1}}, ["A warm-up needs a rule", "linear"]),
        ({"backend": "serial", "options": {}}, ["always has one replica"]),
        ({"backend": "mirrored", "options": {}}, ["runs in one process", "--replicas 2"]),
        ({"topology": Topology(replicas_per_process=2)}, ["one replica in each process"]),
        ({"colour": "red"}, ["colour"]),
        ({"ledger": "some"}, ["ledger", "'digest' or 'full'"]),
        ({"checkpoint_steps": 0}, ["checkpoint_steps", "greater than 0"]),
        ({"checkpoint_steps": 5, "save": "record"}, ["save='record'", "--save all"]),
        (
            {"backend": "parameter_server", "options": {}, "checkpoint_steps": 5},
            ["multiple of its workers", "checkpoint_steps=5, 2 workers", "Try 6."],
        ),
        ({"backend": "serial", "options": {"x": "1"}, "topology": Topology()}, ["has no options"]),
        (
            {"options": TWO_PASSES, "gradient_accumulation_steps": 3},
            ["either by Horovod or by Ringside", "=2 with gradient_accumulation_steps=3"],
        ),
        (
            {"options": TWO_PASSES, "checkpoint_steps": 4},
            ["checkpoint within an epoch", "=2 with checkpoint_steps=4"],
        ),
        (
            {"options": TWO_PASSES, "resume_from": "c.npz"},
            ["no checkpoint holds them", "=2 with resume_from='c.npz'"],
        ),
        (
            {"options": TWO_PASSES, "trained_by": "loop"},
            ["needs Keras' own training step", "=2 with trained_by='loop'"],
        ),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(
    changes: dict[str, object], words: list[str]
) -> None:
    """One message with the rule and what to do."""
    with pytest.raises(RefusalError) as refused:
        spec(**changes)

    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "must be whole JSON"),
        ("[]", "schema version 4"),
        ('{"schema_version": 7}', "schema_version=7"),
        ('{"schema_version": "2"}', "schema_version='2'"),
        ('{"schema_version": 4}', "There is no backend of that name. Received: x.json"),
        (
            '{"schema_version": 4, "backend": "serial"}',
            "RunSpec in x.json: epochs: Field required",
        ),
    ],
)
def test_a_damaged_document_is_refused(text: str, words: str) -> None:
    """Truncated, of another schema, or incomplete; the message names the file."""
    with pytest.raises(RefusalError, match=words):
        RunSpec.from_json(text, origin="x.json")


@pytest.mark.parametrize(("examples", "batch"), [(1, 6), (6, 6), (7, 6), (1437, 48)])
def test_every_example_is_in_one_global_batch(examples: int, batch: int) -> None:
    """The true counts of the steps add up; none exceeds the batch, none is 0."""
    plan = BatchPlan(global_batch=batch, num_replicas=3)

    counts = [plan.true_examples(k, examples) for k in range(plan.steps_per_epoch(examples))]

    assert sum(counts) == examples
    assert all(0 < count <= batch for count in counts)
    assert plan.per_replica_batch * 3 == batch


def test_a_shard_lies_inside() -> None:
    """`index` of `count` starts at 0."""
    with pytest.raises(RefusalError, match="index=2, count=2"):
        InputShard(index=2, count=2)


def test_learning_rate_factors() -> None:
    """none, linear and sqrt at four times the reference batch."""
    factors = [
        LearningRateRule(rule=rule).factor(global_batch=192, reference_batch=48)
        for rule in ("none", "linear", "sqrt")
    ]
    assert factors == [1.0, 4.0, 2.0]


def test_auto_shard_policies_need_a_stream() -> None:
    """Cached data are looked up, not split by file."""
    with pytest.raises(RefusalError, match="--no-cache"):
        PipelineOptions(shard="file")


def test_nothing_ends_without_a_reason() -> None:
    """Only a completed run needs none; exit codes are 0, 1 and 2."""
    with pytest.raises(RefusalError, match="must have a reason"):
        Outcome(kind="failed")
    kinds = ("completed", "failed", "hung", "refused")
    assert [Outcome(kind=k, reason="r", after_s=1).exit_code for k in kinds] == [0, 1, 1, 2]


def test_an_epoch_has_a_time_for_each_step() -> None:
    """The statistics need all of them."""
    with pytest.raises(RefusalError, match="1 times, 2 steps"):
        EpochRecord(
            steps=2,
            examples=4,
            train_s=1,
            step_end_s=(1.0,),
            end_since_process_start_s=2,
            train={},
            validation={},
        )


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    """An existing file is replaced in one go, and no temporary file is left."""
    target = tmp_path / "deep" / "x.json"

    write_whole(target, "old")
    write_whole(target, json.dumps({"a": 1}))

    assert target.read_text() == '{"a": 1}'
    assert [path.name for path in target.parent.iterdir()] == ["x.json"]


def test_files_that_belong_together_appear_together(tmp_path: Path) -> None:
    """Until the last one is written, the set before it is there, whole; then they get their names.

    The last one cannot be written, as on a full disk.
    """
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.write_text("old")

    def full(_: BinaryIO) -> None:
        raise OSError("no space left on device")

    def new(stream: BinaryIO) -> None:
        assert [path.read_text() for path in paths] == ["old"] * 3
        stream.write(b"new")

    for at in range(3):
        writers = {path: full if number == at else new for number, path in enumerate(paths)}
        with pytest.raises(OSError, match="no space left"):
            write_all_whole(writers)
        assert [path.read_text() for path in paths] == ["old"] * 3
    write_all_whole(dict.fromkeys(paths, new))

    assert [path.read_text() for path in paths] == ["new"] * 3
    assert sorted(tmp_path.iterdir()) == paths


def test_what_is_still_in_memory_may_be_what_does_not_fit(tmp_path: Path) -> None:
    """A small file reaches the disk when it is closed; no file is renamed before that."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def writing(size: int) -> Callable[[BinaryIO], object]:
        return lambda stream: stream.write(b"x" * size)

    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_all_whole(dict(zip(paths, map(writing, (5, 5, 20)), strict=True)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []
