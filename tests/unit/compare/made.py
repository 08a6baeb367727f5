"""An executor that starts nothing: runs of made-up speed, for tests of the experiment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from ringside.comparison.arms import parse_arms, twin
from ringside.comparison.progress import ComparisonProgress
from ringside_core.specs import Arm, Asked, Comparison, Execution, Load, Outcome, RunSpec, Shared
from tests.unit.report.proofs import certificate
from tests.unit.stats import factory
from tests.unit.stats.factory import epoch, record, spec_of

QUIET = Load(wall_s=10, cores=2, others_cpu_s=0.1, steal_cpu_s=0)
BUSY = Load(wall_s=10, cores=2, others_cpu_s=8, steal_cpu_s=0)
BASE = spec_of("serial", save="record")
SHARED = Shared.from_run(BASE)
UNSEEN = ComparisonProgress(Console(quiet=True))


@dataclass
class Made:
    """Runs of 100 examples in an epoch.

    Attributes:
        epoch_s: by label; others take 1 s.
        noise: the epochs of all arms but serial take this share more and less in turn.
        busy: numbers of the runs beside which others used the machine.
        fails: arms, by a word of their label, that fail.
        stop_at: number of the run in which Ctrl-C comes.
        ran: (label, seed) of every run that was started.
    """

    epoch_s: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    busy: tuple[int, ...] = ()
    fails: tuple[str, ...] = ()
    stop_at: int | None = None
    ran: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, arm: Arm, spec: RunSpec, run_dir: Path) -> tuple[Execution, Load | None]:
        """One run."""
        number = len(self.ran)
        (run_dir / "logs").mkdir(parents=True)  # fails where there is one already
        if number == self.stop_at:
            raise KeyboardInterrupt
        nth = sum(label == arm.label for label, _ in self.ran)
        self.ran.append((arm.label, spec.seed))
        load = BUSY if number in self.busy else QUIET
        if any(word in arm.label for word in self.fails):
            outcome = Outcome(kind="failed", error_class="Error", reason="made to fail")
            return Execution(outcome=outcome, records=(), wall_s=1.0), load
        noise = 0.0 if arm.backend == "serial" else self.noise * (-1) ** nth
        train_s = self.epoch_s.get(arm.label, 1.0) * math.exp(noise)
        records = tuple(
            record(spec, [epoch(9.0), epoch(train_s), epoch(train_s)], rank)
            for rank in range(spec.topology.num_processes)
        )
        outcome = Outcome(kind="completed")
        return Execution(outcome=outcome, records=records, wall_s=10.0), load


def comparison_of(backends: str, replicas: str = "1", *, verified: bool = False) -> Comparison:
    """A comparison that is about to begin."""
    arms = parse_arms(backends, replicas)
    arms += twin(arms)
    return factory.comparison_of(
        arms,
        [],
        shared=SHARED,
        asked=Asked(launches=3),
        verify=verified,
        certificates=tuple(
            certificate(arm, SHARED.spec_of(arm)) for arm in arms if verified and not arm.twin_of
        ),
    )
