"""An arm to certify."""

from dataclasses import dataclass

from ringside_core.specs import Arm, RunSpec


@dataclass(frozen=True)
class Subject:
    """An arm to certify, and its run."""

    arm: Arm
    spec: RunSpec

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.spec.topology.num_replicas

    @property
    def exact(self) -> bool:
        """Whether its updates have one right result as they are timed."""
        return self.spec.has_one_result
