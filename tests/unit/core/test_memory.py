"""What glibc does with freed memory, counted in page faults of a process of its own."""

import json
import os
import subprocess
import sys

import pytest

# As TensorFlow does in each step: a thread takes 200 MB, writes, and frees all.
PROGRAM = """
import ctypes, json, resource, sys, threading
from ringside_core.memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
faults = []

def steps():
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(1 << 20) for _ in range(200)]
        for block in blocks:
            libc.memset(block, 1, 1 << 20)
        for block in blocks:
            libc.free(block)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=steps)
thread.start()
thread.join()
print(json.dumps(faults))
"""
PAGES = (200 << 20) // os.sysconf("SC_PAGE_SIZE")


def faults(how: str, **variables: str) -> list[int]:
    """Page faults of each step."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[int] = json.loads(done.stdout)
    return found


def test_a_step_finds_the_memory_that_the_last_one_freed() -> None:
    """No page fault after the first step; otherwise glibc gives memory back."""
    kept, otherwise = faults("kept"), faults("as it comes")

    assert kept[0] >= PAGES
    assert max(kept[1:]) < PAGES / 100
    assert max(otherwise[1:]) > PAGES / 10


@pytest.mark.parametrize(
    ("name", "value"), [("MALLOC_TOP_PAD_", "0"), ("GLIBC_TUNABLES", "glibc.malloc.top_pad=0")]
)
def test_settings_of_the_users_own_stay(name: str, value: str) -> None:
    """They were made on purpose."""
    assert max(faults("kept", **{name: value})[1:]) > PAGES / 10
