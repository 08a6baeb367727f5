"""The tasks of a TF_CONFIG: on this machine, or by hostfile over ssh."""

import itertools
from pathlib import Path

from launch.placement import place
from launch.plan import RUN_ID, Plan
from launch.site import LOOPBACK, LOOPBACK_NAMES, Site
from ringside_core.specs import Cluster, ClusterTask, Host, Placement, RefusalError, RunSpec
from ringside_core.specs.cluster import refuse_too_long

# The kernel of another machine cannot be asked for ports before the run, and --dry-run must not
# connect. So ports follow from the run id. They are below Linux's range for outgoing connections
# (from 32768). execute() asks each host whether they are free before it starts anything.
FIRST_REMOTE_PORT = 20000
REMOTE_PORTS = 10000
# Each needs its own port, and the addresses of all others.
MOST_TASKS = 1000


class TFConfig:
    """A process for each task, which finds the others by its TF_CONFIG."""

    def plan(self, spec: RunSpec, *, run_dir: Path, placement: Placement, site: Site) -> Plan:
        """The plan of a backend whose processes find each other by TF_CONFIG."""
        hosts, servers_on = place(spec.topology, placement), placement.servers_on
        coordinated = spec.capabilities.process_model == "coordinator"
        names = dict.fromkeys(
            (*(host.name for host in hosts), *(servers_on if coordinated else ()))
        )
        away = site.away(names)
        if away and (loopback := [name for name in names if name in LOOPBACK_NAMES]):
            raise RefusalError(  # other machines would reach themselves by it
                "Beside other machines, this one must have a name that they can reach it by.",
                received=f"{loopback[0]} beside {away[0]}",
                advice="Put the name or address of this machine into the hostfile.",
            )
        cluster = _cluster(spec, hosts, servers_on, site=site, here=not away)
        first = ClusterTask(cluster=cluster, type="worker", index=0)
        refuse_too_long(first.to_tf_config(), cluster)
        listens = site.listen_on(placement.interface or "" if away else LOOPBACK)
        command, processes = site.task_command(run_dir), []
        for task in cluster.tasks():
            env = {RUN_ID: site.run_id, **listens, "TF_CONFIG": task.to_tf_config()}
            host, serves = task.address.rpartition(":")[0], coordinated and task.type != "chief"
            processes.append(site.process(task.name, host, command, env=env, serves=serves))
        return site.plan(
            spec,
            run_dir,
            processes=tuple(processes),
            expects=tuple(process.name for process in processes),
            cluster=cluster,
            remote_hosts=away,
        )


def _cluster(
    spec: RunSpec, hosts: tuple[Host, ...], servers_on: tuple[str, ...], *, site: Site, here: bool
) -> Cluster:
    """Which task is where: workers fill the slots, others need none; servers take turns."""
    chiefs = int(spec.capabilities.process_model == "coordinator")
    servers, workers = spec.options.num_servers, sum(host.slots for host in hosts)
    if (tasks := chiefs + workers + servers) > MOST_TASKS:
        raise RefusalError(
            f"A run by TF_CONFIG has at most {MOST_TASKS:,} processes.",
            received=f"{tasks:,}",
            advice="Use fewer replicas or servers.",
        )
    if here:
        # The same host for all: a task's local rank is counted among the tasks of its host.
        addresses = [f"127.0.0.1:{port}" for port in site.free_ports(tasks)]
    else:
        turns = itertools.cycle(servers_on or [host.name for host in hosts])
        names = [hosts[0].name] * chiefs
        names += [host.name for host in hosts for _ in range(host.slots)]
        names += itertools.islice(turns, servers)
        first = FIRST_REMOTE_PORT + int(site.run_id, 16) % REMOTE_PORTS
        addresses = [f"{name}:{first + index}" for index, name in enumerate(names)]
    return Cluster(
        chief=tuple(addresses[:chiefs]),
        worker=tuple(addresses[chiefs : chiefs + workers]),
        ps=tuple(addresses[chiefs + workers :]),
    )
