"""The table of backends: a new backend is a new row."""

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

    @property
    def synchronous(self) -> bool:
        """Whether all replicas make one update together; one replica always does."""
        return capabilities_of(self.backend).synchronous or self.replicas == 1

    def spec(self, workload: str, **changes: object) -> RunSpec:
        """A small run of this case, in float64 so that differences are not rounding."""
        single = capabilities_of(self.backend).process_model == "single"
        fields: dict[str, object] = {
            "workload": workload,
            "backend": self.backend,
            "options": self.options,
            "topology": Topology(replicas_per_process=self.replicas)
            if single
            else Topology(processes_per_host=self.replicas),
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
