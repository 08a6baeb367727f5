"""A made-up comparison with a twin and a breakdown arm."""

import math

import numpy as np

from ringside_core.specs import Comparison
from tests.unit.report.proofs import verified
from tests.unit.stats.factory import arm_of, comparison_of, epoch, record, run_of, spec_of


def twin_and_breakdown_arm() -> Comparison:
    """Serial, horovod ×2 and its twin, and a diagnostic arm; in orders that differ."""
    plain = arm_of("horovod", 2)
    twin = plain.replace(label="horovod ×2 again", group="horovod again", twin_of=plain.label)
    probe = plain.replace(label="horovod ×2 no input", ablation="no_input")
    arms = [arm_of("serial"), plain, twin, probe]
    random = np.random.default_rng(4)
    runs = []
    for number in range(6):
        for place, which in enumerate(random.permutation(4)):
            arm = arms[which]
            seconds = (1.0 if arm.backend == "serial" else 2.0) * math.exp(random.normal() / 20)
            changes = {"save": "record", "ablation": arm.ablation}
            spec = spec_of(arm.backend, arm.replicas, seed=1 + number, **changes)
            epochs = [epoch(9.0), epoch(seconds)]
            records = [record(spec, epochs, rank) for rank in range(arm.replicas)]
            runs.append(run_of(arm, records, number=number, position=4 * number + place))
    comparison = verified(comparison_of(arms, runs))
    return comparison.replace(certificates=comparison.certificates[:2])
