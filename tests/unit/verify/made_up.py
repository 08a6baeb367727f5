"""Traces that nobody watched: small arrays with known differences."""

from typing import Any

import numpy as np

from ringside.verify.trace import Trace

STEPS, EPOCHS, NUM_TRAIN, NUM_VALIDATION = 6, 2, 7, 5


def trace(**changes: Any) -> Trace:
    """Six updates of two epochs on seven examples in batches of 3, one process."""
    generator = np.random.default_rng(0)
    fed = np.array([[[[0, 1, 2]], [[3, 4, 5]], [[6, -1, -1]]]] * EPOCHS)
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
        loss=generator.uniform(1, 2, STEPS),
        replica_gap=np.zeros(STEPS),
        metrics={"accuracy": np.array([0.5, 0.6])},
        evaluation={"loss": np.array([1.5, 1.2])},
        predictions={"output 0": generator.normal(size=(NUM_VALIDATION, 3))},
        before={"loss": np.array(1.9)},
        fed=fed,
        meta={
            "train_examples": NUM_TRAIN,
            "updates": [STEPS // EPOCHS] * EPOCHS,
            "ledgers": [ledger_of(range(NUM_TRAIN))] * EPOCHS,
            "validation_examples": [NUM_VALIDATION] * EPOCHS,
            "validation_ledgers": [ledger_of(range(NUM_VALIDATION))] * EPOCHS,
            "initial_loss": 1.9,
        },
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def ledger_of(ids: Any) -> dict[str, Any]:
    """Count, sum and splitmix64 of ids, in Python's integers."""
    numbers = list(ids)
    return {
        "count": len(numbers),
        "id_sum": sum(numbers),
        "id_hash": f"{sum(map(splitmix64, numbers)) % 2**64:016x}",
    }


def splitmix64(number: int) -> int:
    """Steele, Lea, Flood 2014."""
    z = (number + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)
