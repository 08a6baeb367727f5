"""A made-up comparison of fourteen arms, as a report meets it: to look at, and to test with."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from specs import (
    Arm,
    Certificate,
    Comparison,
    Control,
    ControlResult,
    NotRun,
    Noun,
    Outcome,
    Run,
    RunRecord,
    RunSpec,
    capabilities_of,
)
from tests.unit.measure.factory import (
    MACHINE,
    arm_of,
    comparison_of,
    each_once,
    epoch,
    record,
    run_of,
    spec_of,
)
from tests.unit.report.proofs import (
    BY_DESIGN,
    answered,
    certificate,
    deviation,
    failed,
    matrix,
    parity,
    verified,
)

EXAMPLES = 1437
GLOBAL_BATCH = 64
STEPS = 23
EPOCHS = 5
ROUNDS = 3

# Examples/s that are made up, and start-up in s.
ARMS: dict[tuple[str, int, str], tuple[float, float]] = {
    ("serial", 1, ""): (15200, 6.1),
    ("one_device", 1, ""): (14900, 6.3),
    ("mirrored", 1, ""): (14100, 6.5),
    ("mirrored", 2, ""): (16800, 7.9),
    ("central_storage", 1, ""): (14300, 6.4),
    ("central_storage", 2, ""): (15900, 7.7),
    ("multi_worker_mirrored", 1, ""): (12800, 7.2),
    ("multi_worker_mirrored", 2, ""): (17900, 9.4),
    ("parameter_server", 1, ""): (5200, 11.0),
    ("parameter_server", 2, ""): (7900, 12.3),
    ("horovod", 1, ""): (14000, 7.0),
    ("horovod", 2, ""): (20400, 8.8),
    ("horovod", 1, "mpi"): (13900, 7.4),
    ("horovod", 2, "mpi"): (21100, 9.1),
}
LOST_PEER = "Traceback (most recent call last):\n" + "\n".join(
    [
        '  File "train.py", line 121, in _train',
        "    fit(",
        '  File "trainers/fit.py", line 104, in fit',
        "    model.fit(",
        "horovod.common.exceptions.HorovodInternalError: ORTE has lost communication with a remote "
        "daemon.",
    ]
)


def bout() -> Comparison:
    """Three rounds of all arms, one failed run, a TPU that is not there; all arms certified."""
    comparison = verified(_bout())
    return comparison.replace(detection=matrix(*(arm.label for arm in comparison.arms)))


def mixed_bout() -> Comparison:
    """The same, with the fastest of two replicas failed, another not verified, one elsewhere."""
    comparison = bout()
    detection = comparison.detection
    assert detection is not None
    changed: dict[str, Callable[[Certificate], Certificate | None]] = {
        "horovod:controller=mpi ×2": failed,
        "multi_worker_mirrored ×2": lambda one: None,
        "mirrored ×2": lambda one: one.replace(machine=MACHINE.replace(host="bench-2")),
    }
    certificates = [
        changed[one.arm.label](one) if one.arm.label in changed else one
        for one in comparison.certificates
    ]
    missed = [
        one.replace(caught=False, by="the weights differ by 1e-12 only")
        if (one.control, one.arm) == ("tail_dropped", "horovod ×2")
        else one
        for one in detection.results
    ]
    return comparison.replace(
        certificates=tuple(one for one in certificates if one),
        detection=detection.replace(
            results=tuple(missed), false_alarms=("serial: float32 parity failed on a clean run",)
        ),
    )


@functools.cache
def _bout() -> Comparison:
    random = np.random.default_rng(7)
    arms = [
        arm_of(backend, replicas, **({"controller": controller} if controller else {}))
        for backend, replicas, controller in ARMS
    ]
    runs: list[Run] = []
    for number in range(ROUNDS):
        for index in random.permutation(len(arms)):
            rate, startup_s = list(ARMS.values())[index]
            runs.append(_run(arms[index], number, len(runs), rate, startup_s, random))
    return comparison_of(
        arms,
        runs,
        name="digits-laptop",
        command="ringside compare --workload digits --rounds 3",
        rounds=ROUNDS,
        not_run=(
            NotRun(label="tpu ×1", reason="needs a TPU: neither TPU_NAME nor --option tpu is set"),
        ),
    )


def _run(arm: Arm, number: int, position: int, rate: float, startup_s: float, random: Any) -> Run:
    spec = spec_of(
        arm.backend,
        arm.replicas,
        options=arm.options,
        global_batch=GLOBAL_BATCH,
        epochs=EPOCHS,
    )
    rate *= random.normal(1, 0.025)
    records = _records(spec, rate, startup_s * random.normal(1, 0.04), random)
    if arm.label == "horovod:controller=mpi ×2" and number == 1:
        lost = Outcome(
            kind="failed",
            error_class="HorovodInternalError",
            reason="ORTE has lost communication with a remote daemon.",
            traceback=LOST_PEER,
        )
        broken = records[1].replace(outcome=lost, epochs=records[1].epochs[:2], final_digest="")
        whole = lost.replace(traceback="", reason=f"rank-1: {lost.reason}")
        return run_of(arm, [records[0], broken], number=number, position=position, outcome=whole)
    return run_of(arm, records, number=number, position=position, wall_s=startup_s + 60000 / rate)


def _records(spec: RunSpec, rate: float, startup_s: float, random: Any) -> list[RunRecord]:
    coordinated = capabilities_of(spec.backend).process_model == "coordinator"
    processes = spec.topology.num_processes
    accuracy = 0.972 - 0.75 * np.exp(-0.9 * np.arange(1, EPOCHS + 1)) + random.normal(0, 0.004, 5)
    own: dict[str, Any] = {
        "startup_s": startup_s,
        "cpu_s": startup_s * 1.6 + EPOCHS * EXAMPLES / rate,
    }
    if not coordinated:
        return [
            record(
                spec,
                _epochs(rate, startup_s, accuracy, random),
                rank,
                cores=tuple(range(spec.topology.replicas_per_process))
                if processes == 1
                else (rank,),
                peak_memory_bytes=int(640e6 + random.normal(0, 4e6)),
                **own,
            )
            for rank in range(processes)
        ]
    server: dict[str, Any] = {"role": "server", "is_chief": False, "cpu_s": 9.0}
    names = [*(f"worker-{index}" for index in range(processes)), "ps-0"]
    return [
        record(
            spec,
            _epochs(rate, startup_s, accuracy, random),
            task="chief-0",
            role="coordinator",
            cores=tuple(range(processes)),
            **own,
        ),
        *(
            record(spec, [], index, task=name, quality_target=None, startup_s=None, **server)
            for index, name in enumerate(names)
        ),
    ]


def _epochs(rate: float, startup_s: float, accuracy: Any, random: Any) -> list[Any]:
    made, end_s = [], startup_s - 1.0
    for index in range(EPOCHS):
        times = EXAMPLES / rate / STEPS * random.lognormal(0, 0.18, STEPS)
        if index == 0:
            times[0] += 1.0
        ends = np.cumsum(times)
        end_s += float(ends[-1]) + 0.35
        made.append(
            epoch(
                float(ends[-1]) + 1e-4,
                examples=EXAMPLES,
                step_end_s=ends.tolist(),
                end_s=end_s,
                accuracy=float(accuracy[index]),
                ledger=LEDGER,
            )
        )
    return made


LEDGER = each_once(EXAMPLES)

MARKUP = "<script>alert('x')</script>"
LONG = "unbroken" * 30


def hostile() -> Comparison:
    """The same with markup in every string that somebody else may have written."""
    poisoned: Comparison = _poisoned(_two_arms())
    return poisoned


def _poisoned(value: Any) -> Any:
    if isinstance(value, Noun):
        changed = {name: _poisoned(held) for name, held in value}
        return value.replace(**{k: v for k, v in changed.items() if v != getattr(value, k)})
    if isinstance(value, tuple):
        return tuple(_poisoned(held) for held in value)
    if isinstance(value, str):
        for word in ("serial-label", "made-up-workload", "made-up-error", "made-up-command"):
            value = value.replace(word, f"{word} {MARKUP} | `x` [a](b) & $x^$ \x1b[31m{LONG}")
    return value


def _two_arms() -> Comparison:
    serial = arm_of("serial").replace(label="serial-label", group="serial-label")
    tail = arm_of("mirrored", 2)
    specs = {
        arm.label: spec_of(arm.backend, arm.replicas, workload="made-up-workload")
        for arm in (serial, tail)
    }
    lost = Outcome(
        kind="failed",
        error_class="made-up-error",
        reason="made-up-error",
        traceback="made-up-error",
    )
    epochs = [epoch(1.0), epoch(1.0), epoch(1.2)]
    runs = [
        run_of(serial, [record(specs[serial.label], epochs)]),
        run_of(tail, [record(specs[tail.label], epochs)], position=1),
        run_of(
            tail,
            [record(specs[tail.label], [], outcome=lost)],
            number=1,
            position=2,
            outcome=lost,
        ),
    ]
    differing = deviation(0.5, name="made-up-workload", task="made-up-command")
    certificates = (
        certificate(serial, specs[serial.label], code_version="made-up-command"),
        certificate(
            tail,
            specs[tail.label],
            checks=(
                parity("float64", differing),
                answered("made-up-error", passed=False, finding="made-up-error"),
            ),
            by_design=(
                BY_DESIGN.replace(
                    layer="made-up-workload", differs="made-up-error", treated="made-up-error"
                ),
            ),
        ),
    )
    control = Control(name="made-up-error", mistake="made-up-error")
    results = [
        ControlResult(control=control.name, arm=arm, caught=caught, by="made-up-error")
        for arm, caught in ((serial.label, None), (tail.label, False))
    ]
    return comparison_of(
        [serial, tail],
        runs,
        certificates=certificates,
        detection=matrix(
            serial.label,
            tail.label,
            controls=(control,),
            results=tuple(results),
            false_alarms=("made-up-error",),
            machine=MACHINE.replace(host="made-up-command"),
        ),
        name="made-up-command",
        command="made-up-command",
        machine=MACHINE.replace(host="made-up-command", cpu_model="made-up-command"),
        not_run=(NotRun(label="serial-label", reason="made-up-error"),),
    )
