"""What glibc does with freed memory."""

import ctypes
import os

# Of mallopt(3), and what it is set to: as many bytes stay at the end of a heap, which has 64 MiB;
# blocks above so many bytes are mapped one by one, and unmapped when they are freed.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
OWN = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_"}
KEPT = {TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 << 20, MMAP_THRESHOLD: 32 << 20}


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, instead of giving it back to the kernel.

    TensorFlow frees its activations in every step. If glibc gives them back, the next step begins
    with a page fault for each page: that took a third of the time of a convolution net under
    tf.distribute, and nothing under Horovod (docs/upstream.md). Which thread frees what decides it,
    so arms that compute the same would be told apart by it. Blocks above 32 MiB are given back all
    the same: glibc takes no higher limit.

    Who has set one of these himself, or has another libc, keeps what he has.
    """
    if OWN & set(os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in KEPT.items():
            mallopt(parameter, value)
