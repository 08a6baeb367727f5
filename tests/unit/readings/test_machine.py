"""Facts of machine and process, and the rule by which cores are dealt out."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringside_core.readings import machine, process
from ringside_core.specs import MachineFacts

ROOT = Path(__file__).resolve().parents[3]


def in_a_new_process(code: str) -> str:
    """What this prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_machine_facts_are_whole_and_travel_as_json() -> None:
    """All fields are filled on any machine."""
    facts = machine.machine_facts()

    assert facts.host
    assert facts.cpu_model
    assert facts.cores == os.cpu_count()
    assert facts.memory_bytes > 2**28
    assert "numpy" in facts.packages
    assert MachineFacts(**facts.model_dump()) == facts


@pytest.mark.parametrize(
    ("body", "names"),
    [("echo 'A100'; echo 'H100'", ("A100", "H100")), ("exit 9", ()), ("exec sleep 60", ())],
)
def test_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, names: tuple[str, ...]
) -> None:
    """nvidia-smi is asked if it exists; a driver that fails or hangs counts as no GPU."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "NVIDIA_SMI_LIMIT_S", 0.5)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert machine.gpu_names() == names

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpu_names() == ()


@pytest.mark.parametrize(
    ("local_rank", "replicas_per_process", "cores_per_replica", "available", "cores"),
    [
        (0, 1, 1, [0, 1], (0,)),
        (2, 1, 1, [0, 1], (0,)),  # a third replica shares
        (0, 2, 1, [0, 1], (0, 1)),  # one process with both replicas
        (1, 1, 2, [4, 5, 6, 7], (6, 7)),
        (1, 2, 2, [0, 1, 2, 3, 4, 5], (0, 1, 4, 5)),  # replicas 2 and 3 of 3 places
        (1, 1, 2, [3, 5, 9], (3, 9)),  # what is allowed need not begin at 0
    ],
)
def test_cores_are_dealt_out_replica_by_replica(
    local_rank: int,
    replicas_per_process: int,
    cores_per_replica: int,
    available: list[int],
    cores: tuple[int, ...],
) -> None:
    """Cases by hand; replicas share a processor only if there are too few."""
    assert (
        process.cores_for(local_rank, replicas_per_process, cores_per_replica, available) == cores
    )


def test_pin_holds_for_all_threads_and_refuses_what_is_not_there() -> None:
    """Existing threads move too; a processor that does not exist is refused."""
    core = min(os.sched_getaffinity(0))
    code = f"""
import os, threading
from ringside_core.readings.process import pin
from ringside_core.specs import RefusalError
stop = threading.Event()
thread = threading.Thread(target=stop.wait); thread.start()
pin([{core}])
print(os.sched_getaffinity(thread.native_id), os.sched_getaffinity(0))
stop.set()
for wrong in ([{core}, 9999], [9999], []):
    try:
        pin(wrong)
    except (RefusalError, OSError) as error:
        print(type(error).__name__)
"""

    first, *refusals = in_a_new_process(code).splitlines()

    assert first == f"{{{core}}} {{{core}}}"
    assert refusals == ["RefusalError"] * 3


def test_peak_memory_is_this_program_s_own() -> None:
    """It follows what is allocated and does not start with the parent's memory."""
    ballast = bytearray(200_000_000)
    code = """
from ringside_core.readings.process import peak_memory_bytes
before = peak_memory_bytes()
ballast = bytearray(100_000_000)
print(before, peak_memory_bytes())
"""

    before, after = map(int, in_a_new_process(code).split())

    assert before < len(ballast)
    assert 95_000_000 < after - before < 110_000_000


def test_shared_memory_is_that_of_files_and_of_shared_mappings(tmp_path: Path) -> None:
    """Pages of a mapped file and of a shared mapping count, once touched; own memory does not."""
    file = tmp_path / "pages"
    file.write_bytes(bytes(40_000_000))
    code = f"""
import mmap
from ringside_core.readings.process import shared_memory_bytes
found = [shared_memory_bytes()]
own = bytearray(80_000_000); found.append(shared_memory_bytes())
with open({str(file)!r}, "rb") as stream:
    pages = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
sum(pages[::4096]); found.append(shared_memory_bytes())
among = mmap.mmap(-1, 20_000_000); among[::4096] = bytes(len(among[::4096]))
print(*found, shared_memory_bytes())
"""

    before, own, file_too, mapping_too = map(int, in_a_new_process(code).split())

    assert own - before < 5_000_000
    assert 38_000_000 < file_too - own < 45_000_000
    assert 19_000_000 < mapping_too - file_too < 25_000_000


def test_process_start_is_between_before_and_now() -> None:
    """On the clock of time.time(), to the tick of 10 ms; psutil's is up to a second early."""
    before = time.time()

    start = float(
        in_a_new_process(
            "from ringside_core.readings.process import process_start_unix_s as s; print(repr(s()))"
        )
    )

    assert before - 0.03 <= start <= time.time()
