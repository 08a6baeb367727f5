"""What one process saw (RunRecord), and what became of a run (Run). Statistics come later."""

import itertools
import time
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.load import Load
from ringside_core.specs.noun import Document, Noun, UnixSeconds, differences
from ringside_core.specs.run_spec import RunSpec

# As sysexits.h calls it: a failure that is none, try again later.
EX_TEMPFAIL = 75


class Outcome(Noun):
    """How a run, or one process of it, ended. Every run and process has one.

    Attributes:
        kind: `completed`; `refused` before anything was trained, with the reason; `failed` with the
            class and message of the error; `hung` after `after_s` seconds without progress;
            `preempted` when it was asked to end early, and has saved where it was.
        traceback: of a failed process, as Python prints it.
    """

    kind: Literal["completed", "refused", "failed", "hung", "preempted"]
    reason: str = ""
    error_class: str = ""
    after_s: NonNegativeFloat | None = None
    traceback: str = ""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.kind != "completed" and not self.reason:
            raise RefusalError(f"An outcome {self.kind!r} must have a reason.", received="none")
        return self

    @property
    def completed(self) -> bool:
        """Whether it did everything that was asked for."""
        return self.kind == "completed"

    @property
    def exit_code(self) -> int:
        """0 completed, 1 failed or hung, 2 refused, 75 preempted."""
        return {"completed": 0, "refused": 2, "preempted": EX_TEMPFAIL}.get(self.kind, 1)

    def __str__(self) -> str:
        if self.kind == "completed":
            return "completed"
        if self.kind == "hung":
            return f"hung({self.after_s:.0f} s): {self.reason}"
        prefix = f"{self.error_class}: " if self.error_class else ""
        return f"{self.kind}({prefix}{self.reason})"


class LedgerDigest(Noun):
    """Which rows were trained: the same rows in the same order have the same digest.

    Attributes:
        rows: how many.
        hash: over what each holds and its place, as 16 hex digits; empty: none is taken (XLA,
            asynchronous workers).
    """

    rows: NonNegativeInt
    hash: str


class EpochRecord(Noun):
    """One epoch as one process saw it; times in seconds.

    Attributes:
        steps: updates.
        examples: examples of weight above 0 in the epoch, over all replicas; of a resumed one,
            since the restart.
        resumed_examples: those of this epoch that were fed before the restart.
        train_s: from the barrier before the first step to the end of this process's last one.
        beside_s: the rest of the epoch, from the end of the one before and without validation:
            resets, barriers, and reading what the steps added up; None: not measured.
        step_end_s: end of each step, counted from the first of these barriers. Of a coordinator:
            when it learned that a worker had finished the step.
        steps_per_time: steps between two entries of step_end_s (steps_per_execution); the last one
            of an epoch may end fewer.
        sent_bytes: bytes that each network interface of the host sent between the two barriers,
            loopback too, by any process. Only the first process of each host has it.
        end_since_process_start_s: when the epoch and its validation were over.
        train, validation: metrics by name; `loss` is among them.
        ledger: examples that all replicas together were fed in training, also before a restart;
            None: not kept.
        paused_s: time in which it waited for its turn beside other runs; in no other time.
        staleness: of asynchronous workers, how many updates were applied to weights to which
            0, 1, … others had been applied since they were read; empty: not measured.
    """

    steps: PositiveInt
    examples: PositiveInt
    train_s: float = Field(gt=0)
    step_end_s: tuple[NonNegativeFloat, ...]
    end_since_process_start_s: NonNegativeFloat
    train: dict[str, float]
    validation: dict[str, float]
    ledger: LedgerDigest | None = None
    resumed_examples: NonNegativeInt = 0
    beside_s: NonNegativeFloat | None = None
    steps_per_time: PositiveInt = 1
    sent_bytes: dict[str, NonNegativeInt] = Field(default_factory=dict)
    paused_s: NonNegativeFloat = 0.0
    staleness: tuple[NonNegativeInt, ...] = ()

    @model_validator(mode="after")
    def _every_step_has_a_time(self) -> Self:
        expected = -(-self.steps // self.steps_per_time)
        if len(self.step_end_s) != expected:
            raise RefusalError(
                "An epoch record must hold one time for each step, or for each execution.",
                received=f"{len(self.step_end_s)} times, {self.steps} steps, "
                f"{self.steps_per_time} in an execution",
            )
        if any(later < earlier for earlier, later in itertools.pairwise(self.step_end_s)):
            raise RefusalError(
                "step_end_s of an epoch record must not decrease.",
                received="a step that ends earlier",
            )
        return self


class MachineFacts(Noun):
    """The machine and the software that a process ran on.

    Attributes:
        cpu_quota: processors that its container may use at once; None: no quota, or not known.
    """

    host: str
    cpu_model: str
    cores: PositiveInt
    memory_bytes: PositiveInt
    kernel: str
    python: str
    packages: dict[str, str]
    gpus: tuple[str, ...] = ()
    cpu_quota: PositiveFloat | None = None


class RunRecord(Document):
    """What one process of a run saw. One file for each process, written whole or not at all.

    Attributes:
        task: name of the process in its run: rank-0, worker-1, ps-0, chief.
        role: `replica` trains; `coordinator` dispatches; `server` serves a coordinator.
        quality_target: (validation metric, value that must be reached), of the workload.
        cores: processors that the process was allowed to use.
        physical_cores: of each of them, the core that it is a thread of; empty: not known.
        startup_s: process start to the end of the first step (a coordinator: likewise).
        peak_memory_bytes: highest resident set size of this process.
        cpu_s: user and system time of this process; above 0 if it completed.
        clock_s_per_step: what Ringside's clock and listeners take for each step, the median over
            the executions of this process; None: not measured.
        gradient_bytes: of one gradient of all trainable weights; None: unknown.
        replica_deviation: largest difference between any replica's final trainable weights and
            those of the first replica; None where they were not compared.
        initial_digest, final_digest: SHA-256 of all weights in order; empty where unknown.
        boot_id: of the kernel whose clock `started_unix_s` is read from; empty: not known.
        shared_memory_bytes: of its resident pages at the end, those that other processes may hold
            too: of files and of shared memory; None: not known.
        startup_cpu_s: of cpu_s, until the end of the first step; of a server, until it served.
        warnings: what went wrong and ended nothing, such as a checkpoint that did not fit.
        run_id: of the launch that it is a part of; empty: no launcher of Ringside's started it.
    """

    SCHEMA_VERSION: ClassVar[int] = 4

    spec: RunSpec
    task: str
    role: Literal["replica", "coordinator", "server"]
    is_chief: bool
    rank: NonNegativeInt
    machine: MachineFacts
    started_unix_s: UnixSeconds
    cores: tuple[NonNegativeInt, ...]
    outcome: Outcome
    physical_cores: tuple[NonNegativeInt, ...] = ()
    quality_target: tuple[str, float] | None = None
    startup_s: PositiveFloat | None = None
    epochs: tuple[EpochRecord, ...] = ()
    peak_memory_bytes: NonNegativeInt = 0
    cpu_s: NonNegativeFloat = 0.0
    clock_s_per_step: NonNegativeFloat | None = None
    gradient_bytes: NonNegativeInt | None = None
    replica_deviation: NonNegativeFloat | None = None
    initial_digest: str = ""
    final_digest: str = ""
    boot_id: str = ""
    shared_memory_bytes: NonNegativeInt | None = None
    startup_cpu_s: NonNegativeFloat | None = None
    warnings: tuple[str, ...] = ()
    run_id: str = ""

    @model_validator(mode="after")
    def _work_takes_time(self) -> Self:
        if self.outcome.completed and not self.cpu_s:
            raise RefusalError(
                "A process that completed must have taken CPU time.", received=f"cpu_s={self.cpu_s}"
            )
        return self

    @model_validator(mode="after")
    def _each_step_takes_time(self) -> Self:
        """Only for synchronous runs: a coordinator may learn of several steps at the same time."""
        if not self.spec.capabilities.synchronous:
            return self
        for number, epoch in enumerate(self.epochs):
            ends = (0.0, *epoch.step_end_s)
            for index, (before, end) in enumerate(itertools.pairwise(ends)):
                if end <= before:
                    raise RefusalError(
                        "Each step of a synchronous run must take time.",
                        received=f"epochs.{number}.step_end_s.{index}={end} after {before}",
                    )
            if ends[-1] > epoch.train_s:
                raise RefusalError(
                    "The last step of an epoch must end within the epoch's time.",
                    received=f"epochs.{number}.train_s={epoch.train_s}, "
                    f"epochs.{number}.step_end_s.{len(ends) - 2}={ends[-1]}",
                )
        return self


class RecordInProgress(RunRecord, frozen=False):
    """The record of a process that still runs. Fields are assigned as soon as they are known.

    Nothing is checked before `ended`.
    """

    @classmethod
    def begun(cls, spec: RunSpec, *, task: str = "rank-0", rank: int = 0) -> "RecordInProgress":
        """The record of a process that begins now: a replica, not the chief, until it is known."""
        known: dict[str, Any] = {
            "spec": spec,
            "task": task,
            "rank": rank,
            "role": "replica",
            "is_chief": False,
            "started_unix_s": time.time(),
        }
        return cls.model_construct(**known)

    def ended(self, outcome: Outcome) -> RunRecord:
        """The whole record; refused if a field is wrong."""
        return RunRecord(**{**dict(self), "outcome": outcome})


class Block(Noun):
    """A turn of a run that trains in turns with other runs, which are frozen meanwhile.

    Attributes:
        number: of the pass; each pass over the live runs gives every one of them a turn. 0-based.
        begun_after, ended_after: updates that the run had made.
        wall_s: from the thaw to the freeze, with whatever else the training did.
        others_cpu_s: CPU time of others on the processors of the run; None: not known.
        kernel_s: a fixed computation of one core, timed just before the turn: how fast the machine
            was.
    """

    number: NonNegativeInt
    begun_after: NonNegativeInt
    ended_after: PositiveInt
    wall_s: PositiveFloat
    others_cpu_s: NonNegativeFloat | None = None
    kernel_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _has_updates(self) -> Self:
        if self.ended_after <= self.begun_after:
            raise RefusalError(
                "A block must have updates.",
                received=f"begun_after={self.begun_after}, ended_after={self.ended_after}",
            )
        return self


class Execution(Noun):
    """What became of one start of a run's processes.

    Attributes:
        outcome: of the whole run; the death of a process that wrote no record is in it.
        records: one for each process that wrote one.
        wall_s: from the start of the first process to the end of the last.
        failing_task: whose output explains a failure; empty: no task's.
        last_lines: the end of that output.
        started_unix_s: when the first process was started, on the launching machine; None: the
            file is older than this field.
        boot_id: of the kernel whose clock that is.
    """

    outcome: Outcome
    wall_s: NonNegativeFloat
    records: tuple[RunRecord, ...]
    failing_task: str = ""
    last_lines: tuple[str, ...] = ()
    started_unix_s: UnixSeconds | None = None
    boot_id: str = ""

    def launch_s(self, record: RunRecord) -> float | None:
        """Seconds from the start of the first process to the start of this one; None: not known.

        It is the launcher's part: horovodrun works for seconds before it starts a rank. It is known
        for processes on the launching machine only, because clocks of two machines may differ by
        more than a launcher takes. One kernel has one clock, whatever its hosts are called.
        """
        if self.started_unix_s is None or not self.boot_id or record.boot_id != self.boot_id:
            return None
        # The start of a process is known to 10 ms, and may seem to be before its launcher's.
        return max(0.0, record.started_unix_s - self.started_unix_s)


class Run(Execution):
    """One execution of one arm of a comparison.

    Attributes:
        round: number of the launch: 0 is the screening, the others are the final.
        position: 0-based place in the order in which runs were really started.
        spec: what was run.
        log_dir: where the output of every process is, relative to the comparison's folder.
        load: what else the machine did; None: not known.
        blocks: its turns beside the other arms of its round, in order; empty: it ran alone
            (`--fresh`). With blocks, wall_s has only the time of its own turns.
        alone_start_s: from the command to the end of the first step where its arm was started
            alone, by the launcher as it is typed; None: of a later launch, or of a run alone.
    """

    arm: str
    round: NonNegativeInt
    position: NonNegativeInt
    spec: RunSpec
    log_dir: str
    load: Load | None = None
    blocks: tuple[Block, ...] = ()
    alone_start_s: PositiveFloat | None = None

    @property
    def stage(self) -> str:
        """Its launch in words: `the screening`, or `launch 2` of the final."""
        return f"launch {self.round}" if self.round else "the screening"

    @model_validator(mode="after")
    def _a_completed_run_left_something(self) -> Self:
        if self.outcome.completed and not self.records:
            raise RefusalError("A completed run must have records.", received="none")
        if self.outcome.completed and not self.wall_s:
            raise RefusalError(
                "A completed run must have taken time.", received=f"wall_s={self.wall_s}"
            )
        return self

    @model_validator(mode="after")
    def _records_are_of_this_run(self) -> Self:
        for index, record in enumerate(self.records):
            if record.spec != self.spec:
                theirs, own = (one.model_dump(mode="json") for one in (record.spec, self.spec))
                path, found, expected = next(differences(theirs, own))
                raise RefusalError(
                    "Each record of a run must be of the run's own spec.",
                    received=f"records.{index}.spec.{path}={found!r}, and the run has {expected!r}",
                )
        return self
