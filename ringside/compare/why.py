"""Which arms have to run so that the time of others can be split into its parts (`--why`)."""

from ringside.compare.arms import REFERENCE, Scaling
from ringside.stats.breakdown_arms import explaining_arms
from ringside_core.specs import Arm, RunSpec


def arms_that_explain(arms: tuple[Arm, ...], base: RunSpec, scaling: Scaling) -> tuple[Arm, ...]:
    """Those for every arm of the largest size and the serial one; each is there once."""
    most = max(arm.replicas for arm in arms)
    found: dict[str, Arm] = {}
    for arm in arms:
        if arm.replicas == most or arm.backend == REFERENCE:
            for one in explaining_arms(arm, base, scaling=scaling):
                found.setdefault(one.label, one)
    return tuple(found.values())
