"""Where replicas live."""

from pydantic import PositiveInt

from ringside_core.specs.noun import Noun


class Topology(Noun):
    """Hosts, processes and replicas of one run.

    `replicas_per_process` counts copies of the model. Of a parameter-server run only the workers
    count here; the coordinator and the servers are additional processes (`num_servers`).
    """

    hosts: PositiveInt = 1
    processes_per_host: PositiveInt = 1
    replicas_per_process: PositiveInt = 1

    @property
    def num_processes(self) -> int:
        """Processes that hold replicas: the size of a Horovod job, the workers of a TF_CONFIG."""
        return self.hosts * self.processes_per_host

    @property
    def num_replicas(self) -> int:
        """Copies of the model in the whole run."""
        return self.num_processes * self.replicas_per_process
