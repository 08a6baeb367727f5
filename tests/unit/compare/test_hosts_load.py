"""What others did on the hosts of a run, from two looks at their kernels."""

import pytest

from ringside.comparison import hosts_load
from ringside.comparison.hosts_load import PAGE_BYTES, Launcher, Look, load_between
from ringside_core.readings.load import TICKS_PER_S
from ringside_core.specs import RunRecord
from tests.unit.stats.factory import MACHINE, epoch, record, spec_of


@pytest.fixture(autouse=True)
def _half_a_second_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_load, "STARTING_S", 0.5)


def look(
    hostname: str, boot: str, busy_s: dict[int, float], *, steal_s: float = 0, swapped: int = 0
) -> Look:
    """What a host says whose processors were busy for so long."""
    stat = [
        f"cpu{core} {round(s * TICKS_PER_S)} 0 0 9 9 0 0 {round(steal_s * TICKS_PER_S)} 0 0"
        for core, s in busy_s.items()
    ]
    return Look(hostname, boot, "\n".join([f"pswpin {swapped}", "pswpout 0", *stat]))


def process(host: str, core: int, cpu_s: float, rank: int) -> RunRecord:
    """A process of a run of two, pinned to a core of a host."""
    one = record(spec_of("horovod", 2), [epoch(1.0)] * 2, rank)
    return one.replace(machine=MACHINE.replace(host=host), cores=(core,), cpu_s=cpu_s)


def test_each_machine_has_its_own_processors() -> None:
    """Core 0 of each was busy 10 s and 8 s, the run took 9 s and 5 s; core 1 does not count."""
    before = {"a": look("a", "A", {0: 100, 1: 0}), "b": look("b", "B", {0: 7, 1: 0}, steal_s=1)}
    after = {
        "a": look("a", "A", {0: 110, 1: 9}, swapped=2),
        "b": look("b", "B", {0: 15, 1: 9}, steal_s=4),
    }
    records = (process("a", 0, 9.0, 0), process("b", 0, 5.0, 1))

    load = load_between(before, after, records, wall_s=20.0, launcher=Launcher("C", "c", 99.0))

    assert load is not None
    assert load.cores == 2
    assert load.others_cpu_s == pytest.approx((10 - 9 - 0.5) + (8 - 5 - 0.5))
    assert load.steal_cpu_s == pytest.approx(3.0)
    assert load.swapped_bytes == 2 * PAGE_BYTES


def test_hosts_with_one_kernel_are_one_machine() -> None:
    """As in a lab: both see all processors, and the launcher's time is there too."""
    busy = {0: 100.0, 1: 50.0}, {0: 110.0, 1: 58.0}
    before = {name: look(name, "A", busy[0]) for name in "ab"}
    after = {name: look(name, "A", busy[1]) for name in "ab"}
    records = (process("a", 0, 9.0, 0), process("b", 1, 5.0, 1))

    load = load_between(before, after, records, wall_s=20.0, launcher=Launcher("A", "head", 1.5))

    assert load is not None
    assert load.cores == 2
    assert load.others_cpu_s == pytest.approx(18 - 9 - 5 - 1.5 - 2 * 0.5)


@pytest.mark.parametrize(
    ("launcher_s", "own_s"),
    [
        (51.0, 51.0),  # its rank's 50 s, and 1 s of its own
        (3.0, 50.0),  # it did not wait for all of them
    ],
)
def test_a_process_beside_the_launcher_is_counted_once(launcher_s: float, own_s: float) -> None:
    """In the record of the process, and in the time of the launcher, whose child it is.

    "a" is the launching machine, with a stranger of 40 s beside the rank; "b" has the same kernel
    and core 1, its rank is a child of sshd.
    """
    before = {name: look(name, "A", {0: 0, 1: 0}) for name in "ab"}
    after = {name: look(name, "A", {0: 91, 1: 30}) for name in "ab"}
    records = (process("a", 0, 50.0, 0), process("b", 1, 30.0, 1))

    load = load_between(
        before, after, records, wall_s=100.0, launcher=Launcher("A", "a", launcher_s)
    )

    assert load is not None
    assert load.others_cpu_s == pytest.approx(91 + 30 - own_s - 30 - 2 * 0.5)


@pytest.mark.parametrize(
    ("began", "ended"),
    [
        pytest.param(look("a", "A", {0: 9}), look("a", "A", {0: 5}), id="busy time"),
        pytest.param(
            look("a", "A", {0: 0}, steal_s=4), look("a", "A", {0: 5}, steal_s=3), id="steal time"
        ),
        pytest.param(
            look("a", "A", {0: 0}, swapped=2), look("a", "A", {0: 5}, swapped=1), id="swapped"
        ),
        pytest.param(look("a", "A", {1: 0}), look("a", "A", {0: 5, 1: 0}), id="off before"),
        pytest.param(look("a", "A", {0: 0, 1: 0}), look("a", "A", {1: 0}), id="off after"),
    ],
)
def test_a_counter_that_goes_back_is_not_zero(began: Look, ended: Look) -> None:
    """Nor is one of a processor that is off: the host would look quiet."""
    records = (process("a", 0, 1.0, 0),)

    load = load_between(
        {"a": began}, {"a": ended}, records, wall_s=9.0, launcher=Launcher("C", "c", 0.0)
    )

    assert load is None
