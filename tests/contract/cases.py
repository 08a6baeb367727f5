"""The tables of backends, for all tests that start some: a new backend is a new row."""

from dataclasses import dataclass, field

from ringside_core.specs import RunSpec, Topology, capabilities_of

NUM_TRAIN, NUM_VALIDATION, GLOBAL_BATCH, EPOCHS, SEED = 20, 7, 6, 2, 5
"""20 = 3 × 6 + 2: the last batch is short; with two or three replicas some get nothing of it."""


@dataclass(frozen=True)
class Case:
    """A backend at a size."""

    backend: str
    replicas: int
    options: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        extra = "".join(f"-{value}" for value in self.options.values())
        return f"{self.backend}{extra}-{self.replicas}"

    def __hash__(self) -> int:
        return hash(str(self))  # options are a dict, and in the text

    @property
    def synchronous(self) -> bool:
        """Whether all replicas make one update together; one replica always does."""
        return capabilities_of(self.backend).synchronous or self.replicas == 1

    @property
    def topology(self) -> Topology:
        """All replicas on this machine."""
        single = capabilities_of(self.backend).process_model == "single"
        name = "replicas_per_process" if single else "processes_per_host"
        return Topology(**{name: self.replicas})

    def spec(self, workload: str, **changes: object) -> RunSpec:
        """A small run of this case, in float64 so that differences are not rounding."""
        fields: dict[str, object] = {
            "workload": workload,
            "backend": self.backend,
            "options": self.options,
            "topology": self.topology,
            "global_batch": GLOBAL_BATCH,
            "epochs": EPOCHS,
            "precision": "float64",
            "seed": SEED,
            **changes,
        }
        return RunSpec(**fields)


BACKEND_CASES = [
    Case("serial", 1),
    Case("one_device", 1),
    Case("mirrored", 2),
    Case("central_storage", 2),
    Case("multi_worker_mirrored", 1),
    Case("multi_worker_mirrored", 3),
    Case("parameter_server", 1),
    Case("parameter_server", 3, {"servers": 2}),
    Case("horovod", 1),
    Case("horovod", 3, {"controller": "gloo"}),
    Case("horovod", 2, {"controller": "mpi"}),
]

FAMILIES = [Case("mirrored", 2), Case("horovod", 2, {"controller": "gloo"})]

PAIRS = [
    # One for each way of adding up.
    FAMILIES[0],
    Case("multi_worker_mirrored", 2),
    FAMILIES[1],
]
