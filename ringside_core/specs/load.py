"""What else a machine did during a run, and the counters that this was computed from."""

from collections.abc import Sequence
from typing import Self

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ringside_core.specs.noun import Noun


class MachineCounts(Noun):
    """What one machine counted during a run; times are CPU seconds.

    Attributes:
        cores: processors that the run could use.
        busy_s: time in which these worked, for anybody.
        steal_s: time for which the hypervisor gave one of these to somebody else.
        own_s: time of the run's own processes, and of those that started it.
        machine_cores: number of all processors of the machine.
        machine_busy_s, machine_steal_s: as busy_s and steal_s, of all processors.
    """

    cores: tuple[NonNegativeInt, ...]
    busy_s: NonNegativeFloat
    steal_s: NonNegativeFloat
    own_s: NonNegativeFloat
    machine_cores: PositiveInt
    machine_busy_s: NonNegativeFloat
    machine_steal_s: NonNegativeFloat


class Load(Noun):
    """What else the machines did during a run, on the processors that the run could use.

    Attributes:
        wall_s: how long they were watched.
        cores: number of processors that the run could use.
        others_cpu_s: CPU time of processes that do not belong to the run.
        steal_cpu_s: time for which the hypervisor gave a processor to somebody else.
        swapped_bytes: read from and written to swap, by the whole machines.
        machines: what the others were computed from; empty: the file is older.
    """

    wall_s: PositiveFloat
    cores: PositiveInt
    others_cpu_s: NonNegativeFloat
    steal_cpu_s: NonNegativeFloat
    swapped_bytes: NonNegativeInt = 0
    machines: tuple[MachineCounts, ...] = ()

    @classmethod
    def counted(
        cls, machines: Sequence[MachineCounts], *, wall_s: float, swapped_bytes: int
    ) -> Self:
        """The load of a run from what its machines counted.

        CPU time of others = busy time − the run's own. Ticks are coarse, so the difference may be a
        little below 0; then it is 0.
        """
        return cls(
            wall_s=wall_s,
            cores=sum(len(one.cores) for one in machines),
            others_cpu_s=sum(max(0.0, one.busy_s - one.own_s) for one in machines),
            steal_cpu_s=sum(one.steal_s for one in machines),
            swapped_bytes=swapped_bytes,
            machines=tuple(machines),
        )

    @classmethod
    def over(cls, spans: Sequence[Self]) -> Self:
        """The load of several spans of time on one machine, taken together."""
        counts = [span.machines[0] for span in spans]
        sums = {
            name: sum(getattr(one, name) for one in counts)
            for name in ("busy_s", "steal_s", "own_s", "machine_busy_s", "machine_steal_s")
        }
        return cls.counted(
            [counts[0].replace(**sums)],
            wall_s=sum(span.wall_s for span in spans),
            swapped_bytes=sum(span.swapped_bytes for span in spans),
        )

    @property
    def machine_cores(self) -> int:
        """Number of all processors of the machines; 0: the file is older."""
        return sum(one.machine_cores for one in self.machines)
