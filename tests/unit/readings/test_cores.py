"""Which processors a run gets: physical cores first; and how much of them the container may use."""

import os
from pathlib import Path

import pytest

from ringside.comparison.arms import cores_here, parse_arms, too_few_cores
from ringside_core.readings import cgroups, cores
from ringside_core.readings.cgroups import cpu_quota, memory_left_bytes
from ringside_core.readings.cores import physical_cores, usable_cores
from ringside_core.readings.process import cores_for


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four cores with two threads each, numbered as most servers do; no quota."""
    for number in range(8):
        place = tmp_path / f"cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    monkeypatch.setattr(cores, "CPUS", tmp_path)
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


def in_groups(place: Path, own: str, files: dict[str, str]) -> None:
    """Put this process into control groups, with these files by name."""
    (place / "own").write_text(own)
    for name, text in files.items():
        file = place / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def neighbours(place: Path, pairs: str) -> None:
    """Number the threads of one core after each other."""
    for number in range(8):
        first = number - number % 2
        text = f"{first}-{first + 1}" if pairs == "range" else f"{first},{first + 1}"
        (place / f"cpu{number}/topology/thread_siblings_list").write_text(text)


@pytest.mark.parametrize("pairs", ["range", "list"])
def test_two_replicas_are_not_on_two_threads_of_one_core(machine: Path, pairs: str) -> None:
    """Processors 0 and 1 are one core here; the second replica gets processor 2."""
    neighbours(machine, pairs)

    order = usable_cores()

    assert order == (0, 2, 4, 6, 1, 3, 5, 7)
    assert [cores_for(rank, 1, 1, order) for rank in range(3)] == [(0,), (2,), (4,)]
    assert cores_for(1, 1, 2, order) == (4, 6)


def test_only_processors_that_may_be_used_count(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first core only its second thread is left: it is a whole core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 4, 5})

    assert usable_cores() == (1, 2, 4, 5)
    assert physical_cores((1, 2, 4, 5)) == (1, 2, 0, 1)


def test_a_machine_that_does_not_say_has_a_core_for_each_processor(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in many containers and on machines other than Linux."""
    monkeypatch.setattr(cores, "CPUS", machine / "nowhere")

    assert usable_cores() == tuple(range(8))
    assert physical_cores((3, 5)) == (3, 5)


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),  # version 2, in a container
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2.0),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "50000 100000"}, 0.5),
        (
            "5:cpu,cpuacct:/docker/x\n0::/\n",  # version 1; its own folder is mounted at the top
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            3.0,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/\n", {"cpu.max": "what is this"}, None),
    ],
)
def test_the_quota_of_a_container(
    machine: Path, own: str, files: dict[str, str], quota: float | None
) -> None:
    """The smallest of all groups that this process is in, as processors at once."""
    in_groups(machine, own, files)

    assert cpu_quota() == quota


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        (
            "0::/\n",  # version 2
            {
                "memory.max": "1000",
                "memory.current": "700",
                "memory.stat": "anon 5\ninactive_file 20\nactive_file 30",
            },
            350,
        ),
        ("0::/\n", {"memory.max": "max", "memory.current": "700"}, None),
        (
            "0::/a/b\n",
            {
                "a/memory.max": "1000",
                "a/memory.current": "900",
                "a/b/memory.max": "500",
                "a/b/memory.current": "100",
            },
            100,
        ),
        (
            "4:memory:/docker/x\n0::/\n",  # version 1; its own folder is mounted at the top
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "1200",
                "memory/memory.stat": "inactive_file 7\ntotal_inactive_file 30",
            },
            30,
        ),
        ("0::/\n", {}, None),
    ],
)
def test_the_memory_of_a_container(
    machine: Path, own: str, files: dict[str, str], left: int | None
) -> None:
    """The least of all groups: limit − use + what the kernel would give back at once."""
    in_groups(machine, own, files)

    assert memory_left_bytes() == left


@pytest.mark.parametrize(
    ("quota", "replicas", "each", "words"),
    [
        (None, "1,2", 2, ""),  # four cores, not eight
        (None, "1,6", 1, "6 replicas on 4 cores"),
        ("300000 100000", "1,2", 1, ""),
        ("150000 100000", "1,2", 1, "may use 1.5 processors at once"),
    ],
)
def test_replicas_get_whole_cores_within_the_quota(
    machine: Path, quota: str | None, replicas: str, each: int, words: str
) -> None:
    """And a person hears if there are too few."""
    if quota is not None:
        (machine / "own").write_text("0::/\n")
        (machine / "cgroup").mkdir()
        (machine / "cgroup/cpu.max").write_text(quota)
    arms = parse_arms("mirrored", replicas)

    assert cores_here(arms) == each
    advice = too_few_cores(arms, each)
    assert words in advice
    assert bool(advice) == bool(words)
