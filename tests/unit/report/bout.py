"""A made-up comparison of fifteen arms and a twin: to look at, and to test with; never measured."""

import functools
from typing import Any

import numpy as np

from ringside.stats.breakdown_arms import breakdown_arms_of
from ringside_core.specs import (
    Arm,
    Asked,
    Comparison,
    Division,
    EpochRecord,
    Load,
    NotRun,
    Outcome,
    Run,
    RunRecord,
    RunSpec,
    Settings,
    Shared,
    Trial,
    capabilities_of,
)
from tests.unit.report.collectives import communication
from tests.unit.report.proofs import recertified, verified
from tests.unit.stats.factory import (
    MACHINE,
    arm_of,
    comparison_of,
    each_once,
    epoch,
    record,
    run_of,
    spec_of,
)

EXAMPLES = 1437
GLOBAL_BATCH = 48
EPOCHS = 5
ROUNDS = 8
DISTURBED = 5  # the round in which somebody else used the machine
PARAMETERS = 120_000  # of four bytes

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
TUNED = ("multi_worker_mirrored", 2, 19_300.0, 9.4)
# What a breakdown run takes, as a share of the arm that it is for or of serial.
WITHOUT = {"no_reduction": 0.74, "no_input": 0.95}
HALF_BATCH = 0.58
CEILING = 24_500.0
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


@functools.cache
def bout() -> Comparison:
    """Eight rounds, one of them disturbed, one failed run, a TPU that is not there; certified."""
    return verified(_bout())


@functools.cache
def mixed_bout() -> Comparison:
    """The same, with the fastest of two replicas failed, another not verified, one elsewhere."""
    elsewhere = MACHINE.replace(host="bench-2")
    comparison = recertified(bout(), "horovod:controller=mpi ×2")
    comparison = recertified(comparison, "multi_worker_mirrored ×2", lambda one: None)
    return recertified(comparison, "mirrored ×2", lambda one: one.replace(machine=elsewhere))


@functools.cache
def _bout() -> Comparison:
    random = np.random.default_rng(7)
    shared = Shared.from_run(spec_of("serial", global_batch=GLOBAL_BATCH, epochs=EPOCHS))
    speeds = {
        arm_of(backend, replicas, **({"controller": controller} if controller else {})): speed
        for (backend, replicas, controller), speed in ARMS.items()
    }
    arms = list(speeds)
    last = arms[-1]
    twin = last.replace(
        label=f"{last.label} again", group=f"{last.group} again", twin_of=last.label
    )
    default = next(arm for arm in arms if (arm.backend, arm.replicas) == TUNED[:2])
    tuned = default.replace(
        label="multi_worker_mirrored:steps_per_execution=10 ×2",
        group="multi_worker_mirrored:steps_per_execution=10",
        settings=Settings(steps_per_execution=10),
        tuned_from=default.label,
    )
    speeds |= {tuned: TUNED[2:], twin: speeds[last]}
    diagnostic = {
        arm.label: arm for row in (last, default, tuned) for arm in breakdown_arms_of(row, shared)
    }
    known = {arm.label for arm in speeds}
    speeds |= {
        arm: _breakdown_speed(arm, arms) for arm in diagnostic.values() if arm.label not in known
    }
    runs: list[Run] = []
    for number in range(ROUNDS):
        drift = 1 - 0.01 * number
        for index in random.permutation(len(speeds)):
            arm = list(speeds)[index]
            rate, startup_s = speeds[arm]
            runs.append(_run(arm, number, len(runs), rate * drift, startup_s, random))
    return comparison_of(
        list(speeds),
        runs,
        name="digits-laptop",
        command="ringside compare --workload digits --tuned --why",
        shared=shared,
        asked=Asked(budget_s=900),
        division=Division(
            screening_s=90, launches=ROUNDS, phase_s=0, start_s=100, pass_s=0, scatter=0.05
        ),
        ended_because="Another round would take longer than the budget of 15 minutes.",
        trials=_trials(default, tuned, random),
        communication=communication(random),
        not_run=(
            NotRun(label="tpu ×1", reason="needs a TPU: neither TPU_NAME nor --option tpu is set"),
        ),
    )


def _breakdown_speed(arm: Arm, arms: list[Arm]) -> tuple[float, float]:
    """Examples/s of a breakdown arm, so that the parts are a share of its step."""
    rates = {
        (one.backend, str(getattr(one.options, "controller", None)), one.replicas): speed
        for one, speed in zip(arms, ARMS.values(), strict=True)
    }
    batch = arm.global_batch or GLOBAL_BATCH
    if batch != GLOBAL_BATCH or arm.ablation == "unused":
        share = HALF_BATCH * {"unused": 1.01, "no_input": 0.93}.get(arm.ablation, 1.0)
        tax = 1.0 if arm.backend == "serial" or arm.ablation == "unused" else 1.07
        return batch / (GLOBAL_BATCH / 15200 * share * tax), 6.5
    if not arm.capabilities.one_model:
        return CEILING, 7.5
    key = (arm.backend, str(getattr(arm.options, "controller", None)), arm.replicas)
    rate, startup_s = TUNED[2:] if arm.settings != Settings() else rates[key]
    return rate / WITHOUT.get(arm.ablation, 1.0), startup_s


def _trials(default: Arm, tuned: Arm, random: Any) -> tuple[Trial, ...]:
    tried = (
        (default, TUNED[2] / 1.08, False),
        (tuned, TUNED[2], True),
        (default.replace(label="keras 3", settings=Settings(keras=3)), TUNED[2] / 1.07, False),
    )
    broken = Outcome(kind="failed", error_class="ValueError", reason="XLA cannot compile it.")
    compiled = default.replace(label="compiled", settings=Settings(jit_compile=True))
    return (
        *(
            Trial(
                arm=arm,
                tuned_from=default.label,
                run=_run(arm, 0, place, rate, 9.0, random),
                chosen=chosen,
            )
            for place, (arm, rate, chosen) in enumerate(tried)
        ),
        Trial(
            arm=compiled,
            tuned_from=default.label,
            run=run_of(compiled, [], position=len(tried), outcome=broken),
        ),
    )


def _run(arm: Arm, number: int, position: int, rate: float, startup_s: float, random: Any) -> Run:
    spec = spec_of(
        arm.backend,
        arm.replicas,
        options=arm.options,
        global_batch=arm.global_batch or GLOBAL_BATCH,
        epochs=EPOCHS,
        seed=number,
        ablation=arm.ablation,
        steps_per_execution=arm.settings.steps_per_execution or 1,
        resources=_resources(arm),
        **({"save": "record"} if arm.for_breakdown else {}),
    )
    disturbed = number == DISTURBED
    rate *= random.normal(0.9 if disturbed else 1, 0.012)
    records = _records(spec, rate, startup_s * random.normal(1, 0.04), random)
    load = Load(wall_s=20.0, cores=2, others_cpu_s=9.2 if disturbed else 0.3, steal_cpu_s=0.1)
    if arm.label == "horovod:controller=mpi ×2" and number == 1:
        lost = Outcome(
            kind="failed",
            error_class="HorovodInternalError",
            reason="ORTE has lost communication with a remote daemon.",
            traceback=LOST_PEER,
        )
        broken = records[1].replace(outcome=lost, epochs=records[1].epochs[:2], final_digest="")
        whole = lost.replace(traceback="", reason=f"rank-1: {lost.reason}")
        both = [records[0], broken]
        return run_of(arm, both, number=number, position=position, outcome=whole, load=load)
    wall_s = startup_s + 60000 / rate
    return run_of(arm, records, number=number, position=position, wall_s=wall_s, load=load)


def _resources(arm: Arm) -> dict[str, int]:
    """The same for each replica, in one process or in several."""
    single = capabilities_of(arm.backend).process_model == "single"
    threads = arm.replicas if single else 1
    return {"cores_per_replica": 1, "intra_op_threads": threads, "inter_op_threads": threads}


def _records(spec: RunSpec, rate: float, startup_s: float, random: Any) -> list[RunRecord]:
    coordinated = capabilities_of(spec.backend).process_model == "coordinator"
    processes = spec.topology.num_processes
    accuracy = 0.972 - 0.75 * np.exp(-0.9 * np.arange(1, EPOCHS + 1)) + random.normal(0, 0.004, 5)
    epochs = _epochs(spec, rate, startup_s, accuracy, random)
    own: dict[str, Any] = {
        "startup_s": startup_s,
        "cpu_s": startup_s * 1.6 + EPOCHS * EXAMPLES / rate,
        "startup_cpu_s": startup_s * 1.5,
        "clock_s_per_step": 2.1e-5 * random.normal(1, 0.05),
        "gradient_bytes": 4 * PARAMETERS,
    }
    if not coordinated:
        return [
            record(
                spec,
                epochs if rank == 0 else [_later(one, random) for one in epochs],
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
            spec, epochs, task="chief-0", role="coordinator", cores=tuple(range(processes)), **own
        ),
        *(
            record(spec, [], index, task=name, quality_target=None, startup_s=None, **server)
            for index, name in enumerate(names)
        ),
    ]


def _later(one: EpochRecord, random: Any) -> EpochRecord:
    """The same epoch as another rank saw it: every step ends a little earlier."""
    ends = np.array(one.step_end_s)
    gaps = np.diff(ends, prepend=0.0)
    return one.replace(
        step_end_s=tuple(ends - gaps * random.uniform(0.02, 0.2, len(ends))), sent_bytes={}
    )


def _epochs(
    spec: RunSpec, rate: float, startup_s: float, accuracy: Any, random: Any
) -> list[EpochRecord]:
    made, end_s = [], startup_s - 1.0
    steps = -(-EXAMPLES // spec.global_batch)
    replicas = spec.topology.num_replicas
    for index in range(EPOCHS):
        times = EXAMPLES / rate / steps * random.lognormal(0, 0.18, steps)
        if index == 0:
            times[0] += 1.0
        ends = np.cumsum(times)
        end_s += float(ends[-1]) + 0.35
        every = spec.steps_per_execution
        seen = [*ends[every - 1 : -1 : every], ends[-1]] if every > 1 else ends.tolist()
        made.append(
            epoch(
                float(ends[-1]) + 1e-4,
                examples=EXAMPLES,
                steps=steps,
                steps_per_time=every,
                step_end_s=[float(end) for end in seen],
                end_s=end_s,
                accuracy=float(accuracy[index]),
                ledger=LEDGER,
                beside_s=0.002 * replicas,
                sent_bytes={"lo": int(steps * (replicas - 1) * 8.3 * PARAMETERS)},
            )
        )
    return made


LEDGER = each_once(EXAMPLES)
