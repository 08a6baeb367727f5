"""An arm to certify, and the certificate before anything is known."""

import time
from dataclasses import dataclass

from launch.remote.host_checks import machine_of
from ringside.certificates import store
from ringside.certificates.processes import Start
from ringside_core.specs import Arm, Certificate, RunSpec


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


def blank_certificate(subject: Subject, steps: int, start: Start) -> Certificate:
    """The certificate of an arm that is not judged yet."""
    return Certificate(
        arm=subject.arm,
        spec=subject.spec,
        kind="exact" if subject.exact else "in turn",
        steps=steps,
        code_version=store.code_version(),
        machine=machine_of(start.placement),
        orders=store.orders(),
        hosts=start.placement.hosts or (),
        launcher=start.launcher_of(subject.spec),
        created_unix_s=time.time(),
    )
