"""Every model of the zoo computes the same under every backend as in the serial run."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pytest

from launch.interrupts import Interrupts
from ringside.verify.cases import watched_spec
from ringside.verify.checks import (
    reference_is_plain_keras,
    training_ledger,
    validation_ledger,
)
from ringside.verify.gate import parity
from ringside.verify.processes import Watched, run_request, side_by_side
from ringside.verify.request import PLAIN, Case, Request, case_folder
from ringside.verify.subject import Subject
from ringside.verify.trace import Trace
from ringside_core.specs import RunSpec
from tests.nightly import daily
from tests.verify.arms import GLOO, subject
from tests.verify.zoo import GLOBAL_BATCH, ZOO

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("warm"),
]

ARMS = {
    one.arm.label: one
    for one in (
        subject("mirrored", 2),
        subject("central_storage", 2),
        subject("horovod", 2, GLOO),
        subject("multi_worker_mirrored", 3),
        subject("parameter_server", 1),
    )
}
SPLIT_MATTERS = (
    "batch_norm", "batch_norm_of_dropout", "contrastive", "coupled_loss", "masked_output",
)  # fmt: skip
# (name of the case, model, passes in which a replica's part of the batch is run)
CASES = [*((name, name, 1) for name in ZOO), ("accumulated", "dense", 2)]
# The layers and optimizers are Keras' own under every backend, so not every model is asked of each:
# of central_storage what its variables decide, of backends with several processes one of each kind.
OF_HOROVOD = (
    "dense", "embedding", "batch_norm", "sync_batch_norm", "dropout", "two_in_two_out",
    "global_clipnorm", "legacy_clipnorm", "adam", "class_weights", "contrastive", "added_loss",
    "masked_output", "accumulated",
)  # fmt: skip
OF_STRATEGIES = (
    "embedding", "sync_batch_norm", "dropout", "global_clipnorm", "adam", "contrastive",
    "added_loss", "accumulated",
)  # fmt: skip
ASKED_OF = {
    "central_storage": ("embedding", "sync_batch_norm", "legacy_clipnorm"),
    "horovod:controller=gloo": OF_HOROVOD,
    "multi_worker_mirrored": OF_STRATEGIES,
    "parameter_server": OF_STRATEGIES,
}

# `make test` asks each model of one family, and those of which the reduction decides of both.
OF_BOTH = ("embedding", "sync_batch_norm", "masked_output", "accumulated")

# What plain Keras cannot tell of them, see plain_keras.py.
WITHOUT = {
    "batch_norm": ["metrics"],
    "batch_norm_of_dropout": ["metrics"],
    "sync_batch_norm": ["metrics"],
    "contrastive": ["loss", "metrics"],
}


def runs(label: str, name: str) -> bool:
    """Whether an arm runs a case."""
    return name in ASKED_OF.get(label.split()[0], [name])


def is_daily(case: tuple[str, str]) -> bool:
    """Whether `make test` runs a model in an arm."""
    name, label = case
    if label.startswith("mirrored"):
        return name not in OF_HOROVOD or name in OF_BOTH
    return label.startswith("horovod")


def cases(names: set[str], spec: RunSpec, *, sizes: Collection[int] = ()) -> tuple[Case, ...]:
    """The models of an arm; the serial run also as several replicas, and by plain Keras."""
    made = []
    for name, model, passes in CASES:
        if name not in names:
            continue
        own = watched_spec(spec).replace(
            workload=f"tests.verify.zoo:{model}",
            global_batch=GLOBAL_BATCH,
            epochs=2,
            precision="float64",
            gradient_accumulation_steps=passes,
        )
        made.append(Case(name=name, spec=own, steps=None, plain=spec.backend == "serial"))
        if name in SPLIT_MATTERS:
            made += [
                Case(name=f"{name}-as-{size}", spec=own, steps=None, virtual_replicas=size)
                for size in sizes
            ]
    return tuple(made)


@pytest.fixture(scope="module", name="watched")
def watched_(
    asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Watched]:
    """Every arm that is asked for is started once, for all its models."""
    names: dict[str, set[str]] = {"serial": set()}
    for parameters in (one for one in asked if "name" in one):
        for label in {"serial", parameters.get("label", "serial")}:
            names.setdefault(label, set()).add(parameters["name"])

    def watch(label: str, interrupts: Interrupts) -> Watched:
        one: Subject = ARMS.get(label) or subject("serial", 1)
        sizes = {arm.replicas for name, arm in ARMS.items() if name in names} - {1}
        own = cases(names[label], one.spec, sizes=() if label in ARMS else sorted(sizes))
        return run_request(
            Request(cases=own), watched_spec(one.spec), tmp_path_factory.mktemp("zoo"), interrupts
        )

    found = side_by_side([partial(watch, label) for label in names])
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("name", "label"),
    daily([(name, label) for name, *_ in CASES for label in ARMS if runs(label, name)], is_daily),
)
def test_a_model_is_certified(name: str, label: str, watched: Mapping[str, Watched]) -> None:
    """float64, after each update, in every process; each example once."""
    arm = watched[label].traces[name]
    if name.startswith("legacy_") and "clip" in name and label.startswith("central_storage"):
        # Keras raises in the first update; Ringside says so before.
        assert "cannot clip gradients under central_storage" in arm["rank-0"].error
        return
    replicas = ARMS[label].replicas
    split = name in SPLIT_MATTERS and replicas > 1
    (reference,) = watched["serial"].traces[f"{name}-as-{replicas}" if split else name].values()

    for check in (
        parity(arm, reference, precision="float64"),
        training_ledger(arm, reference, synchronous=True),
        validation_ledger(arm, reference),
    ):
        assert check.passed, f"{check.name}: {check.finding}"
    assert reference.steps == 6


@pytest.mark.parametrize("name", [name for name, _, _ in CASES])
def test_the_reference_is_plain_keras(name: str, watched: Mapping[str, Watched]) -> None:
    """Also of models that look at their whole batch, and with accumulated gradients."""
    serial = watched["serial"]
    plain = Trace.read(case_folder(serial.folder, name) / PLAIN)
    (reference,) = serial.traces[name].values()

    check = reference_is_plain_keras(plain, reference)

    assert check.passed, check.finding
    assert plain.meta["without"] == WITHOUT.get(name, [])


def test_the_reference_is_whole(watched: Mapping[str, Watched]) -> None:
    """Else nothing above would have been compared."""
    serial = watched["serial"]

    assert serial.execution.outcome.completed, serial.execution.last_lines
    for name, traces in serial.traces.items():
        for trace in traces.values():
            assert not trace.error, f"{name}: {trace.error}"
