"""To which part of a step an operation belongs; what a training that is traced too late says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringside_core.keras.tensorflow import Event
from ringside_core.specs import RefusalError
from trainers.tracer import Tracer, _operations

CALLED = "Reduce/cond_7/then/_115/Reduce/cond_7/"  # before what stands in a branch
STARTS, ENDS = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"


def event(
    name: str, /, begin: int = 0, ns: int = 1, thread: str = "tf_Compute/1", **stats: Any
) -> Any:
    """An event of TensorFlow's profiler."""
    return Event(name, thread, begin, ns, stats)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("net/dense/MatMul:MatMul", "forward"),
        ("StatefulPartitionedCall/net/dense/MatMul:MatMul", "forward"),  # Keras 3
        ("while/body/_1/while/net/dense/MatMul:MatMul", "forward"),  # steps_per_execution
        ("while/body/_1/while/GatherV2:GatherV2", "other"),
        ("StatefulPartitionedCall/GatherV2:GatherV2", "other"),
        ("cond/then/_0/cond/Fingerprint:Fingerprint", "other"),
        ("PartitionedCall/Reduce/Size:Size", "other"),  # the scope of a collective
        ("gradient_tape/net/dense/MatMul:MatMul", "backward"),
        ("while/body/_1/while/gradient_tape/net/dense/MatMul:MatMul", "backward"),
        ("replica_1/GatherV2:GatherV2", "other"),  # of Mirrored
        ("replica_1/net/dense/MatMul:MatMul", "forward"),
        (
            "while/body/_1/while/cond/then/_60/while/cond/StatefulPartitionedCall/net/dense/x:Mul",
            "forward",
        ),
        ("opt_1/mul:Mul", "optimizer"),
        ("Adam/mul:Mul", "optimizer"),
        ("Adam_1/mul:Mul", "optimizer"),
        ("StatefulPartitionedCall/x/ResourceApplyAdam:ResourceApplyAdam", "optimizer"),
        ("EagerLocalExecute: IteratorGetNext", "input"),
    ],
)
def test_a_name_says_the_part(name: str, kind: str) -> None:
    """With what functions and loops put before it; beside a collective of each stack."""
    collective = [
        event(STARTS, 10, _p=1, name=f"{CALLED}HorovodAllreduce_0", kernel_type="HorovodAllreduce"),
        event(ENDS, 30, _c=1),
    ]
    graphs: list[dict[str, int | None]] = [{"HorovodAllreduce_0": 8}, {"other": 4}]
    found = list(_operations([event(name), *collective], {"Adam", "opt_1"}, {"net"}, graphs))

    assert [(one.kind, one.ns, one.bytes) for one in found] == [
        (kind, 1, None),
        ("collective", 20, 8),
    ]


def test_a_layer_that_reduces_is_forward() -> None:
    """As synchronised batch normalisation does."""
    name = "net/norm/HorovodAllreduce_0"
    events = [
        event(STARTS, 10, _p=1, name=name, kernel_type="HorovodAllreduce"),
        event(ENDS, 30, _c=1),
        event("net/dense/MatMul:MatMul", 40),
    ]
    kinds = [one.kind for one in _operations(events, set(), {"net", "norm"}, [])]

    assert kinds == ["collective", "forward"]


def test_tf_data_reads_in_the_background() -> None:
    """A map computes nothing for which a step would wait."""
    thread = "tf_data_private_threadpool/7"
    (found,) = _operations([event("resize/Resize:ResizeBilinear", thread=thread)], set(), set(), [])

    assert found.kind == "reading"


def test_sizes_are_of_the_graph_that_is_seen() -> None:
    """The step of a training has a collective that the test step has not."""
    names = ["CollectiveReduceV2", "metrics/CollectiveReduceV2"]
    events = [
        one
        for k, name in enumerate(names)
        for one in (
            event(STARTS, 10 * k, _p=k, name=name, kernel_type="CollectiveReduceV2"),
            event(ENDS, 10 * k + 5, _c=k),
        )
    ]
    graphs: list[dict[str, int | None]] = [{names[0]: 500, names[1]: 4}, {names[0]: 4}]

    assert [one.bytes for one in _operations(events, set(), set(), graphs)] == [500, 4]


def test_a_training_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    """Data that cannot begin again were fewer than the steps that are traced."""
    tracer = Tracer(tmp_path, "rank-0", None)
    tracer.training = SimpleNamespace(steps_per_epoch=5)  # type: ignore[assignment]
    tracer.clock = SimpleNamespace(began=0.0)  # type: ignore[assignment]
    tracer.on_epoch_begin(0)
    for done in range(1, 6):
        tracer.on_step(done)

    with pytest.raises(RefusalError, match="Received: 5, where its data ended"):
        tracer.on_trained()
