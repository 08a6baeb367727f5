"""Made-up traces: small arrays with known differences."""

from typing import Any

import numpy as np

from ringside.certificates.trace import Trace

STEPS, EPOCHS, NUM_TRAIN, NUM_VALIDATION = 6, 2, 7, 5


def trace(**changes: Any) -> Trace:
    """Six updates of two epochs on seven examples in batches of 3, one process."""
    generator = np.random.default_rng(0)
    made = Trace(
        weights={
            "000 dense/kernel": generator.normal(size=(STEPS + 1, 4)),
            "001 dense/bias": 1e-3 * generator.normal(size=(STEPS + 1, 2)),
        },
        slots={
            "000 iteration": np.arange(STEPS + 1).reshape(-1, 1),
            "001 m/dense/kernel": 1e-2 * generator.normal(size=(STEPS + 1, 4)),
            "002 v/dense/kernel": 1e-6 * generator.normal(size=(STEPS + 1, 4)) ** 2,
        },
        final={"000 dense/kernel": generator.normal(size=(2, 2))},
        replica_gap=np.zeros(STEPS),
        metrics={"accuracy": np.array([0.5, 0.6])},
        evaluation={"loss": np.array([1.5, 1.2])},
        predictions={"output 0": generator.normal(size=(NUM_VALIDATION, 3))},
        before={"loss": np.array(1.9)},
        meta={
            "train_examples": NUM_TRAIN,
            "updates": [STEPS // EPOCHS] * EPOCHS,
            "ledgers": [(NUM_TRAIN, "5eed")] * EPOCHS,
            "validation_examples": [NUM_VALIDATION] * EPOCHS,
        },
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made
