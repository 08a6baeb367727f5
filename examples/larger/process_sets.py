"""Horovod: an embedding whose rows are divided over ranks, by process sets and alltoall.

Each set of ranks holds the whole table, a part each: `alltoall` brings ids to the rank that has
their rows, and the rows back. Ranks that hold the same part, in different sets, add its gradients.

horovodrun -np 4 python examples/larger/process_sets.py [--parts 2]
"""

import argparse
import os
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from beside_serial import Clock, alone, compared

ROWS, SIZE, SLOTS, BATCH, UPDATES, RATE = 2**16, 64, 4, 64, 10, 1.0
RANKS = int(os.environ.get("HOROVOD_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", "1")))
Sets = tuple[hvd.ProcessSet, hvd.ProcessSet]  # ranks with the other parts, ranks with the same one


def looked_up(part: tf.Variable, ids: Any, ranks: hvd.ProcessSet) -> Any:
    """The rows of these ids; id k is row k // P of part k % P."""
    parts = ranks.size()
    owner = tf.reshape(ids % parts, [-1])
    order, counts = tf.argsort(owner, stable=True), tf.math.bincount(owner, minlength=parts)
    sorted_rows = tf.gather(tf.reshape(ids // parts, [-1]), order)
    asked, asked_by = hvd.alltoall(sorted_rows, splits=counts, process_set=ranks)
    back, _ = hvd.alltoall(tf.gather(part, asked), splits=asked_by, process_set=ranks)
    return tf.gather(back, tf.argsort(order))


def train(sets: Sets | None = None) -> tuple[list[Any], str]:
    """The weights after all updates, of a rank its part, and memory and speed; None: serially."""
    drawn, clock = np.random.default_rng(0), Clock(BATCH)
    whole = np.arange(ROWS * SIZE).reshape(ROWS, SIZE) / (ROWS * SIZE)
    parts = sets[0].size() if sets else 1
    table = tf.Variable(whole[(sets[0].rank() if sets else 0) :: parts])
    dense = tf.Variable(drawn.normal(scale=0.1, size=(SLOTS * SIZE, 1)))

    @tf.function(autograph=False)
    def update(ids: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            rows = looked_up(table, ids, sets[0]) if sets else tf.gather(table, ids)
            error = tf.tanh(tf.reshape(rows, [-1, SLOTS * SIZE])) @ dense - y
            loss = tf.reduce_sum(error**2) / BATCH
        of_table, of_dense = tape.gradient(loss, [table, dense])
        if sets:
            of_table = hvd.allreduce(of_table, op=hvd.Sum, process_set=sets[1])
            of_dense = hvd.allreduce(of_dense, op=hvd.Sum)
        table.scatter_sub(tf.IndexedSlices(RATE * of_table.values, of_table.indices))
        dense.assign_sub(RATE * of_dense)

    rank, ranks = (hvd.rank(), hvd.size()) if sets else (0, 1)
    for ids in drawn.integers(ROWS, size=(UPDATES, BATCH, SLOTS), dtype=np.int32):
        y = np.cos(ids).sum(axis=1, keepdims=True)
        update(tf.constant(ids[rank::ranks]), tf.constant(y[rank::ranks]))
        clock.tick()
    return [table.numpy(), dense.numpy()], str(clock)


def sets_of(parts: int) -> Sets:
    """Start Horovod with all sets; those of this rank."""
    across = [range(first, first + parts) for first in range(0, RANKS, parts)]
    same = [range(first, RANKS, parts) for first in range(parts)]
    # The set of all ranks is there already.
    known = [hvd.ProcessSet(each) for each in (*across, *same) if len(each) < RANKS]
    hvd.init(process_sets=known)

    def own(ranks: list[range]) -> hvd.ProcessSet:
        (mine,) = (list(each) for each in ranks if hvd.rank() in each)
        return next((one for one in known if one.ranks == mine), hvd.global_process_set)

    return own(across), own(same)


if __name__ == "__main__":
    options = argparse.ArgumentParser(usage=argparse.SUPPRESS)
    options.add_argument("--parts", type=int, default=2)
    parts = options.parse_args().parts
    fits = [str(n) for n in range(1, RANKS + 1) if RANKS % n == 0 and RANKS > 1]
    if str(parts) not in fits:
        can = ", ".join(fits) or "horovodrun -np 4"
        options.error(f"parts divide the ranks; {parts} does not divide {RANKS}; fits: {can}")
    found, here = train(sets_of(parts))
    print(f"rank {hvd.rank()}: {here}", flush=True)
    tables = hvd.allgather(found[0]).numpy()  # (sets · parts · rows of a part, size)
    first = hvd.rank() == 0
    hvd.shutdown()
    if first:
        serial, serially = alone(train)
        print(f"serial: {serially}")
        whole = tables.reshape(RANKS // parts, parts, -1, SIZE).swapaxes(1, 2)
        same_tables = [serial[0]] * len(whole)
        end = compared(
            [*whole.reshape(-1, ROWS, SIZE), found[1]], [*same_tables, serial[1]], UPDATES
        )
        options.exit(end)
