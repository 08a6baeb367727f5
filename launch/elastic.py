"""A run on the hosts that are usable: fewer replicas after a fault, more when hosts are back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.attempts import trainers_of, wait
from launch.execute import refused
from launch.flags import topology_for
from launch.interrupts import Interrupts
from launch.placement import slots_used
from launch.remote.host_checks import usable_hosts
from launch.site import Site
from ringside_core.specs import Execution, Host, Placement, RefusalError, RunSpec, Surroundings
from ringside_core.specs.placement import spread
from ringside_core.text import plural

LOOK_S = 15.0  # a look starts a short Python on each host


class Elastic:
    """Fits a run to the hosts that are usable.

    Args:
        spec: of the run, with the most replicas that it may have.
        fewest: replicas below which it does not start.
        hosts: those of the hostfile, which may change.
        placement: what else was said of the hosts.
        run_dir: folder of the run.
        say: called with a line about each new size.

    Raises:
        RefusalError: the fewest are more than the most.
    """

    def __init__(
        self,
        spec: RunSpec,
        fewest: int,
        *,
        hosts: Callable[[], tuple[Host, ...]],
        placement: Placement,
        run_dir: Path,
        say: Callable[[str], None],
    ) -> None:
        self._most = spec.topology.num_replicas
        if fewest > self._most:
            raise RefusalError(
                "--min-replicas may not be more than --replicas.",
                received=f"--min-replicas {fewest} --replicas {self._most}",
                advice="Use a smaller --min-replicas.",
            )
        self._fewest = fewest
        self._hosts, self._placement, self._run_dir = hosts, placement, run_dir
        self._say, self._said = say, self._most
        self._begun = False
        self._pause_s, self._grows_from = LOOK_S, 0

    def run(
        self, spec: RunSpec, run: Callable[[RunSpec, Placement], Execution], interrupts: Interrupts
    ) -> Execution:
        """Run it with as many replicas as there is room for, until there is room for more.

        Args:
            spec: of the run.
            run: starts a run of this size on these hosts, and waits for its end.
            interrupts: that the run heeds.

        Returns:
            What became of it; refused: by now there is room for fewer than the fewest.

        Raises:
            RefusalError: there is none at the first start.
        """
        try:
            fitted, placement, problems = self._fit(spec, interrupts)
        except RefusalError as error:
            if not self._begun:
                raise
            return refused(str(error))
        self._begun = True
        replicas = fitted.topology.num_replicas
        if replicas != self._said:
            why = f": {'; '.join(problems)}" if problems else ""
            self._say(f"with {replicas} of {self._most} replicas{why}")
            self._said = replicas
        # A host that is usable only until a run starts there would let it start for ever.
        in_vain = 0 < replicas <= self._grows_from
        self._pause_s, self._grows_from = 2 * self._pause_s if in_vain else LOOK_S, 0
        with self._growing(fitted, interrupts):
            return run(fitted, placement)

    @contextmanager
    def _growing(self, fitted: RunSpec, interrupts: Interrupts) -> Iterator[None]:
        """While a run trains, ask it to save and end once there is room for more replicas."""
        if fitted.topology.num_replicas == self._most:
            yield
            return
        own = Interrupts()  # stops the thread, which may wait for an answer of a host

        def watch() -> None:
            with suppress(SystemExit):
                while True:
                    wait(self._pause_s, own)
                    with suppress(RefusalError, OSError):  # a disk may be away for a while
                        grown, _, _ = self._fit(fitted, own)
                        more = grown.topology.num_replicas > fitted.topology.num_replicas
                        if more and trainers_of(self._run_dir):  # before, it has nothing to save
                            self._grows_from = fitted.topology.num_replicas
                            interrupts.resize()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            own.stop()
            thread.join()

    def _fit(self, spec: RunSpec, interrupts: Interrupts) -> tuple[RunSpec, Placement, list[str]]:
        hosts = self._hosts()
        names = {host.name for host in hosts}
        servers = tuple(name for name in self._placement.servers_on if name in names)
        listed = self._placement.replace(hosts=hosts, servers_on=servers)
        there, problems = usable_hosts(
            listed, Site.here(), folder=self._run_dir, spec=spec, interrupts=interrupts
        )
        if self._placement.servers_on and not there.servers_on:
            there, problems = there.replace(hosts=()), ["no host of --servers-on", *problems]
        why = "no usable host"
        for replicas in range(self._most if there.hosts else 0, self._fewest - 1, -1):
            try:
                alone = topology_for(spec.backend, replicas, Surroundings())
                fitted = spec.replace(topology=spread(alone, there))
                slots_used(fitted, there)
            except RefusalError as error:  # no room, or other settings do not fit so many
                why = str(error)
                continue
            return fitted, there, problems
        raise RefusalError(
            f"The run must have {plural(self._fewest, 'replica')} at least.",
            received="\n  ".join([why, *problems]),
        )
