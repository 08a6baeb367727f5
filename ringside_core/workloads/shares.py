"""How many examples and batches each reader of a split gets. Only numbers, no TensorFlow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.specs import BatchPlan, InputShard, RefusalError
from ringside_core.specs.run_spec import ShardPolicy


@dataclass(frozen=True)
class Shares:
    """What the readers of one split get in an epoch.

    Attributes:
        num_examples: of the split.
        of_files: examples of each file of a stream; empty: arrays.
        updates: of an epoch that goes on where the last one ended; None: it is one pass.
        policy: how the examples are divided among the readers.
        plan: how the global batch is divided.
        synchronous: the slices of all readers make one update.
    """

    num_examples: int
    of_files: tuple[int, ...]
    updates: int | None
    policy: ShardPolicy
    plan: BatchPlan
    synchronous: bool

    @property
    def goes_on(self) -> bool:
        """Whether an epoch goes on where the last one ended; else it is one pass over the data."""
        return self.updates is not None

    @property
    def last_batch(self) -> int:
        """Examples of the short last batch of an epoch; 0: all batches are whole."""
        return 0 if self.goes_on else self.num_examples % self.plan.global_batch

    @property
    def global_batches(self) -> int:
        """Global batches of an epoch."""
        if self.updates is not None:
            return self.updates
        return self.plan.steps_per_epoch(self.num_examples)

    def steps_per_epoch(self, num_readers: int) -> int:
        """Updates in one epoch; of an asynchronous run, over all readers."""
        if self.synchronous:
            return self._padded_steps(num_readers)
        batches = [self.reader_batches(shard) for shard in _shards(num_readers)]
        # The readers take steps in turn, so their shares may differ by one step at most.
        if batches != sorted(batches, reverse=True) or batches[0] - batches[-1] > 1:
            raise RefusalError(
                "The readers of an asynchronous run must have nearly equal shares.",
                received=f"--shard {self.policy} gives {batches} batches",
                advice="Use --shard batch.",
            )
        return sum(batches)

    def epoch_examples(self, num_readers: int) -> int:
        """Examples of weight above 0 that all readers give in an epoch."""
        return sum(self.reader_examples(shard) for shard in _shards(num_readers))

    def reader_batch(self, num_readers: int) -> int:
        """Examples of a global batch that one of so many readers gives, padding included."""
        return self.plan.global_batch // num_readers

    def reader_batches(self, shard: InputShard) -> int:
        """Batches of one replica's size that a reader with one replica gives in an epoch."""
        if self.synchronous:
            return self._padded_steps(shard.count)
        return -(-self.reader_examples(shard) // self.plan.per_replica_batch)

    def reader_examples(self, shard: InputShard) -> int:
        """Number of examples that one reader keeps in an epoch."""
        if self.policy == "batch":
            return sum(self._slice_size(step, shard) for step in range(self.global_batches))
        if self.policy == "off":
            return self.num_examples
        if self.policy == "data":
            return len(range(shard.index, self.num_examples, shard.count))
        if len(self.of_files) < shard.count:
            raise RefusalError(
                "The shard policy `file` needs at least one file for each reader.",
                received=f"{len(self.of_files)} files, {shard.count} readers",
                advice="Use --shard batch or --shard data.",
            )
        return sum(self.of_files[shard.index :: shard.count])

    def true_counts(self, num_readers: int) -> NDArray[Any]:
        """Examples of weight above 0 in each global batch of an epoch, [steps]."""
        if self.goes_on:
            return np.full(self.global_batches, self.plan.global_batch)
        if self.policy == "batch":
            steps = range(self.global_batches)
            return np.array([self.plan.true_examples(k, self.num_examples) for k in steps])
        local = self.reader_batch(num_readers)
        starts = np.arange(self._padded_steps(num_readers)) * local
        counts = np.zeros_like(starts)
        for shard in _shards(num_readers):
            counts += np.clip(self.reader_examples(shard) - starts, 0, local)
        return counts

    def _slice_size(self, step: int, shard: InputShard) -> int:
        """Examples of weight above 0 in a reader's slice of global batch `step`."""
        local = self.reader_batch(shard.count)
        if self.goes_on:
            return local
        begin = step * self.plan.global_batch + shard.index * local
        return max(0, min(local, self.num_examples - begin))

    def _padded_steps(self, num_readers: int) -> int:
        """Steps until the reader with the most examples has read them all."""
        if self.policy == "batch":
            return self.global_batches
        most = max(self.reader_examples(shard) for shard in _shards(num_readers))
        return -(-most // self.reader_batch(num_readers))


def _shards(num_readers: int) -> list[InputShard]:
    return [InputShard(index=index, count=num_readers) for index in range(num_readers)]
