"""What a training of the control workload comes to when a mistake is made in it: by NumPy."""

import dataclasses
from typing import Any

import numpy as np

from ringside.verify.mistakes import EPOCHS, GLOBAL_BATCH, TRAIN_EXAMPLES
from tests.independent import order
from tests.verify import by_hand
from tests.verify.by_hand import Batch, Weights

SEED, REPLICAS = 1, 2
SIZE = GLOBAL_BATCH // REPLICAS


def control_data(split: str) -> tuple[np.ndarray, np.ndarray]:
    """x and y of the control workload."""
    from ringside.verify.workloads import control_workload

    x, y = getattr(control_workload(), split).arrays
    return x, y


def trained_by_hand(
    name: str, backend: str, began: list[Weights], right: Weights
) -> list[list[Weights]]:
    """What each replica should hold after each update.

    Args:
        name: of the mistake.
        backend: where it is made.
        began: the initial weights that were seen, of each process.
        right: those of the training without a mistake.
    """
    total = TRAIN_EXAMPLES
    if name == "tail_dropped":
        total -= total % GLOBAL_BATCH
    epochs = [fed_by_hand(name, epoch, total) for epoch in range(EPOCHS)]
    starts = [list(right) for _ in range(REPLICAS)]
    if name == "no_initial_broadcast":
        starts = began
    rate = by_hand.RATE * (REPLICAS if name == "rate_scaled_twice" else 1)
    if name not in ("clean-resumed", "state_not_restored_everywhere"):
        return by_hand.train(starts, epochs, combine=combined_by_hand(name, backend), rate=rate)
    first = by_hand.train(starts, epochs[:1])
    before, after = first[-2], first[-1]
    moving = [
        [b - a for a, b in zip(old, new, strict=True)]
        for old, new in zip(before, after, strict=True)
    ]
    if name == "state_not_restored_everywhere":
        moving[1] = [np.zeros_like(m) for m in moving[1]]
    return [*first, *by_hand.train(after, epochs[1:], velocities=moving)[1:]]


def fed_by_hand(name: str, epoch: int, total: int) -> list[list[Batch]]:
    """One epoch of what each replica is fed, [update][replica]."""
    x, y = control_data("train")

    def fed(seed: int) -> list[list[Batch]]:
        numbers = order(epoch, seed=seed, total=total)
        return by_hand.batches(x, y, numbers, global_batch=GLOBAL_BATCH, replicas=REPLICAS)

    updates = fed(SEED)
    if name == "same_shard":
        return [[update[0]] * REPLICAS for update in updates]
    if name == "different_order":
        by_reader = [fed(SEED + reader) for reader in range(REPLICAS)]
        return [
            [by_reader[reader][k][reader] for reader in range(REPLICAS)]
            for k in range(len(updates))
        ]
    if name == "fed_nothing" and epoch == 0:
        empty = updates[1][-1]
        updates[1][-1] = dataclasses.replace(empty, weight=np.zeros_like(empty.weight))
    if name == "local_mean":
        return [
            [dataclasses.replace(b, scale=SIZE / max(1, b.weight.sum())) for b in update]
            for update in updates
        ]
    if name == "padding_counted":
        ones = np.ones(SIZE)
        return [
            [dataclasses.replace(b, weight=ones, scale=1.0) for b in update] for update in updates
        ]
    return updates


def combined_by_hand(name: str, backend: str) -> by_hand.Combine:
    """What each replica applies of all replicas' gradients."""

    def summed(local: list[Weights]) -> list[Weights]:
        return [[REPLICAS * g for g in replica] for replica in by_hand.mean(local)]

    def own(local: list[Weights]) -> list[Weights]:
        if backend == "horovod":
            return local
        # A strategy's loss is divided by the replicas, for the sum that does not come.
        parts = [[g / REPLICAS for g in replica] for replica in local]
        return [parts[0]] * REPLICAS if backend == "central_storage" else parts

    def partly(local: list[Weights]) -> list[Weights]:
        pairs = zip(by_hand.mean(local), own(local), strict=True)
        return [[*reduced[:-1], alone[-1]] for reduced, alone in pairs]

    def halves(local: list[Weights]) -> list[Weights]:
        columns: Any = zip(*local, strict=True)
        merged = [
            np.sum([(g / REPLICAS).astype(np.float16) for g in column], axis=0, dtype=np.float16)
            for column in columns
        ]
        return [[half.astype(np.float64) for half in merged]] * REPLICAS

    return {
        "gradients_summed": summed,
        "not_reduced": own,
        "partly_reduced": partly,
        "float16_compression": halves,
    }.get(name, by_hand.mean)
