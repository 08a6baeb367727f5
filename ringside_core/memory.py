"""What glibc does with freed memory."""

import ctypes
import os

# By the name of its variable: what mallopt(3) calls it, and bytes. A heap has 64 MiB, and so many
# stay at its end; a block above 32 MiB is mapped alone, and unmapped when it is freed.
KEPT = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
    "MALLOC_TOP_PAD_": (-2, 64 << 20),
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20),
}


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, instead of giving it back to the kernel.

    TensorFlow frees its activations in every step. If glibc gives them back, the next step begins
    with a page fault for each page: that took a third of the speed of a convolution net under
    tf.distribute, and nothing under Horovod (docs/upstream.md). Which thread frees what decides it,
    so arms that compute the same would differ by it. Blocks above 32 MiB are given back all
    the same: glibc takes no higher limit.

    Who has set one of these himself, or has another libc, keeps what he has.
    """
    if KEPT.keys() & os.environ.keys() or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in KEPT.values():
            mallopt(parameter, value)
