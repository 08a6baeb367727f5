"""What is certified if the user does not say it: how many updates, and against which peer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ringside.certificates import certify_arms as module
from ringside.certificates.certify import peer_of
from ringside.certificates.subject import Subject
from ringside_core.specs import Certificate
from ringside_core.workloads.registry import DEFAULT, WORKLOADS
from tests.unit.stats.factory import arm_of, spec_of


class Asked(Exception):  # noqa: N818  # no error: the answer that the test waits for
    """The number of updates that were asked for; nothing is certified."""


@pytest.mark.parametrize(
    ("workload", "asked", "steps"),
    [("digits", None, 20), ("digits-large", None, 8), ("digits-large", 5, 5), ("a.py:b", None, 20)],
)
def test_the_workload_says_how_many(
    workload: str, asked: int | None, steps: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Twenty, fewer where an update takes long; a number that was typed counts more."""

    def certify(subjects: Sequence[Subject], **given: Any) -> tuple[Certificate, ...]:
        raise Asked(given["steps"])

    monkeypatch.setattr(module, "certify", certify)
    subject = Subject(arm_of("serial"), spec_of("serial", workload=workload, global_batch=96))

    with pytest.raises(Asked) as raised:
        module.certify_arms(Console(quiet=True), [subject], tmp_path, steps=asked)

    assert raised.value.args == (steps,)


def test_the_default_workload_is_one_of_ringsides() -> None:
    """And its global batch can be divided by every usual number of replicas."""
    batch = WORKLOADS[DEFAULT].global_batch

    assert not [size for size in (1, 2, 3, 4, 6, 8) if batch % size]


def test_the_peer_of_a_slowed_arm_is_not_slowed() -> None:
    """An arm whose rows are coupled is held against it; its replicas may be in one process."""
    peer = peer_of(spec_of("horovod", 2, slow_worker=0.33))

    assert (peer.backend, peer.topology.num_replicas, peer.slow_worker) == ("mirrored", 2, None)
