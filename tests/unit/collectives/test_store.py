"""What is kept for later comparisons, and found only for the same hosts, links and code."""

from pathlib import Path

import pytest

from ringside.collectives import store
from ringside.collectives.stacks import STACKS
from ringside.collectives.store import find_communication, keep, why_not_kept
from ringside_core.specs import Communication, Outcome, StackTimings
from tests.unit.collectives.test_measurement import SIZES, facts, of, stack_of
from tests.unit.stats.factory import MACHINE, link


def every(sizes: tuple[int, ...] = SIZES, wrong: int = 0) -> list[StackTimings]:
    """All stacks; the NCCL ones cannot run."""
    no_gpu = Outcome(kind="refused", reason="no GPU")
    return [
        StackTimings(stack=name, outcome=no_gpu)
        if "nccl" in name.lower()
        else stack_of(name, sizes, wrong)
        for name in STACKS
    ]


@pytest.mark.parametrize(
    ("found", "cores", "words"),
    [
        (of(*every()), 2, ""),
        (of(*every()), 1, "it has more ranks (2) on a host than usable cores (1)"),
        (of(*every(), hosts=("a", "b")), 1, ""),
        (of(*every(), hosts=("a", "a")), 1, "it has more ranks (2) on a host"),
        (of(*every(sizes=SIZES[:3])), 2, "it has 3 of at least 4 sizes"),
        (of(stack_of("mpi")), 2, "it is without horovod mpi, horovod gloo, horovod nccl, tf"),
        (of(*every(wrong=1)), 2, "a stack failed, or elements were wrong"),
    ],
)
def test_what_is_kept(found: Communication, cores: int, words: str) -> None:
    """A measurement of one stack or one size must not replace the one that reports use."""
    why_not = why_not_kept(found, usable_cores=cores)

    assert why_not.startswith(words) and bool(why_not) == bool(words)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of its own, on a made-up machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(store, "machine_facts", lambda: MACHINE)


def test_it_is_found_on_this_machine_by_this_code() -> None:
    """On another machine, by other code, or in a file that is cut short, nothing is found."""
    here = of(*every())
    assert find_communication() is None

    path = keep(here)

    assert find_communication() == here
    keep(here.replace(code_version="older"))
    assert find_communication() is None
    keep(here.replace(machine=MACHINE.replace(host="elsewhere")))
    assert find_communication() is None
    path.write_text(here.to_json()[:-20])
    assert find_communication() is None


LINK = link("one", "two", 100)
KNOWN = {"one": facts(1, "10.0.0.1"), "two": facts(2, "10.0.0.2")}


def test_hosts_have_their_own() -> None:
    """The same names with other addresses or cores, or another row of hosts, are others."""
    local, remote = of(*every()), of(*every(), hosts=("one", "two"), links=(LINK,))
    keep(local)
    keep(remote, KNOWN)

    assert find_communication() == local
    assert find_communication(("one", "two"), [LINK], KNOWN) == remote
    assert find_communication(("two", "one"), [LINK], KNOWN) is None
    for changed in (facts(2, "10.0.0.1"), facts(1, "10.0.0.9")):
        assert find_communication(("one", "two"), [LINK], {**KNOWN, "one": changed}) is None
