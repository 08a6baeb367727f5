"""The runs as lines of MLPerf's training log, for tools that read it.

The format is that of mlcommons/logging, `mlperf_logging/mllog/mllog.py` (`:::MLLOG ` and an object
of namespace, time_ms, event_type, key, value, metadata); the keys are those of its `constants.py`.
The package's own logger writes through `logging` and warns of every `file` that is given; one
`json.dumps` is less code. The lines are no submission: Ringside claims nothing of MLPerf's rules
beyond these keys.
"""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from ringside.stats.step_times import chief_of
from ringside_core.specs import Comparison, EpochRecord, Run, RunRecord

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
Value = str | int | float | None


def render_mllog(comparison: Comparison) -> str:
    """All lines: the ranked arms' runs, in the order in which they were started.

    Each run has its own namespace, `run-` and its position. A run whose chief left no record has no
    lines, because its times are not known. Runs of breakdown arms have none, because they leave
    out a part of the training.
    """
    breakdown_arms = {arm.label for arm in comparison.arms if arm.for_breakdown}
    lines: list[str] = []
    for run in sorted(comparison.runs, key=lambda run: run.position):
        chief = chief_of(run)
        if chief is not None and run.arm not in breakdown_arms:
            lines += _Log(run, chief).lines()
    return "".join(f"{line}\n" for line in lines)


class _Log:
    """The lines of one run; times in Unix milliseconds, from the chief's clock."""

    def __init__(self, run: Run, chief: RunRecord) -> None:
        self._run = run
        self._chief = chief
        self._file = str(PurePosixPath(run.log_dir).parent / "records" / f"{chief.task}.json")

    def lines(self) -> Iterator[str]:
        """From the command to the epoch that reached the target, or the last one.

        MLPerf's run ends when the target is reached (training rules, "run results"): epochs that
        were trained after it are in results.json only.
        """
        chief = self._chief
        yield self._line(-(self._run.launch_s(chief) or 0.0), START, "init_start")
        yield from self._facts()
        begin_s = self._begin_s()
        if begin_s is None:
            yield self._line(0.0, END, "init_stop")
            yield self._line(0.0, START, "run_start")
            yield self._stop(0.0, reached=False)
            return
        yield self._line(begin_s, END, "init_stop")
        yield self._line(begin_s, START, "run_start")
        end_s, reached = begin_s, False
        for number, epoch in enumerate(chief.epochs, 1):
            yield from self._epoch(number, epoch, end_s)
            end_s = epoch.end_since_process_start_s
            reached = self._reached(epoch)
            if reached:
                break
        yield self._stop(end_s, reached=reached)

    def _facts(self) -> Iterator[str]:
        run, chief = self._run, self._chief
        spec = run.spec
        machine = chief.machine
        facts: dict[str, Value] = {
            "submission_benchmark": spec.workload,
            "submission_platform": f"{machine.cores} x {machine.cpu_model}",
            "seed": spec.seed,
            "global_batch_size": spec.global_batch,
            "gradient_accumulation_steps": spec.gradient_accumulation_steps,
        }
        first = next(iter(chief.epochs), None)
        trained = None if first is None else first.examples + first.resumed_examples
        samples = trained if chief.train_examples is None else chief.train_examples
        if samples is not None:
            facts["train_samples"] = samples
        if first is not None:
            facts["eval_samples"] = first.validation_examples
        if spec.learning_rate_rule.rule != "none":
            facts["opt_learning_rate_warmup_epochs"] = spec.learning_rate_rule.warmup_epochs
        for key, value in facts.items():
            yield self._line(0.0, POINT, key, value)

    def _begin_s(self) -> float | None:
        """The barrier before the first step, from the start of the process."""
        chief = self._chief
        if chief.startup_s is None or not chief.epochs:
            return None
        return max(0.0, chief.startup_s - chief.epochs[0].step_end_s[0])

    def _epoch(self, number: int, epoch: EpochRecord, begin_s: float) -> Iterator[str]:
        """Training and validation; an epoch begins when the validation before it is over."""
        end_s = epoch.end_since_process_start_s
        trained_s = min(begin_s + epoch.train_s, end_s)
        place: dict[str, Value] = {"epoch_num": number}
        yield self._line(begin_s, START, "epoch_start", None, place)
        yield self._line(trained_s, END, "epoch_stop", None, place)
        yield self._line(trained_s, START, "eval_start", None, place)
        quality = self._quality(epoch)
        if quality is not None and self._chief.quality_target is not None:
            metric, target = self._chief.quality_target
            told = {**place, "metric": metric, "target": target}
            yield self._line(end_s, POINT, "eval_accuracy", quality, told)
        yield self._line(end_s, END, "eval_stop", None, place)

    def _quality(self, epoch: EpochRecord) -> float | None:
        target = self._chief.quality_target
        return None if target is None else epoch.validation.get(target[0])

    def _reached(self, epoch: EpochRecord) -> bool:
        target, quality = self._chief.quality_target, self._quality(epoch)
        return target is not None and quality is not None and quality >= target[1]

    def _stop(self, end_s: float, *, reached: bool) -> str:
        """MLPerf knows two ends: `success` reached the target, everything else is `aborted`."""
        run = self._run
        status: dict[str, Value] = {"status": "success" if reached else "aborted"}
        if not run.outcome.completed:
            status = {"status": "aborted", "reason": str(run.outcome)}
        elif self._chief.quality_target is None:
            status["reason"] = "the workload has no target"
        elif not reached:
            status["reason"] = "the target was not reached"
        return self._line(end_s, END, "run_stop", None, status)

    def _line(
        self,
        since_start_s: float,
        event_type: str,
        key: str,
        value: Value = None,
        metadata: dict[str, Value] | None = None,
    ) -> str:
        """One event; `file` names the record that it comes from, not a line of source code."""
        arm: dict[str, Value] = {"arm": self._run.arm, "round": self._run.round}
        return ":::MLLOG " + json.dumps(
            {
                "namespace": f"run-{self._run.position:03d}",
                "time_ms": round(1000 * (self._chief.started_unix_s + since_start_s)),
                "event_type": event_type,
                "key": key,
                "value": value,
                "metadata": {"file": self._file, "lineno": 1, **arm, **(metadata or {})},
            }
        )
