"""Comparison: what the arms share, the arms, and every run. Statistics come later."""

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ringside_core.specs.arm import Arm
from ringside_core.specs.certificate import Certificate
from ringside_core.specs.communication import Communication, Link
from ringside_core.specs.errors import RefusalError
from ringside_core.specs.hostfile import Host
from ringside_core.specs.input_change import InputStage
from ringside_core.specs.knob import with_values
from ringside_core.specs.noun import Document, Noun, UnixSeconds
from ringside_core.specs.placement import THIS_MACHINE, Placement, spread
from ringside_core.specs.record import MachineFacts, Run
from ringside_core.specs.run_spec import MAX_SEED, Resources, RunSpec, TrainingSpec
from ringside_core.specs.topology import Topology

Scaling = Literal["strong", "weak"]


class Shared(TrainingSpec):
    """What all arms of a comparison share. `spec_of` makes the run of an arm from it.

    Exactly one of the two batches is set, and it says what stays the same at every size.

    Attributes:
        global_batch: strong scaling: examples in one update, at every number of replicas.
        per_replica_batch: weak scaling: examples of one replica in one update.
        resources: of one replica. A process gets the threads of all its replicas, so each replica
            has the same number under every backend. Intra-op None: as many as it has cores.
    """

    global_batch: PositiveInt | None = None
    per_replica_batch: PositiveInt | None = None

    @classmethod
    def from_run(cls, run: RunSpec, scaling: Scaling = "strong") -> Self:
        """What a run of one replica has in common with all arms."""
        batch = "global_batch" if scaling == "strong" else "per_replica_batch"
        shared = {name: getattr(run, name) for name in TrainingSpec.model_fields}
        return cls(**shared, **{batch: run.global_batch})

    @model_validator(mode="after")
    def _one_batch_stays(self) -> Self:
        if (self.global_batch is None) == (self.per_replica_batch is None):
            raise RefusalError(
                "Either the global batch or the batch of each replica must be given, not both.",
                received=f"global_batch={self.global_batch}, "
                f"per_replica_batch={self.per_replica_batch}",
            )
        return self

    @property
    def scaling(self) -> Scaling:
        """`strong`: the global batch stays at every size. `weak`: each replica's batch stays."""
        return "strong" if self.per_replica_batch is None else "weak"

    def with_cores(self, each: int) -> Self:
        """With so many cores for each replica and two inter-op threads, unless they are set."""
        own = self.resources
        return self.replace(
            resources=own.replace(
                cores_per_replica=own.cores_per_replica or each,
                inter_op_threads=own.inter_op_threads or 2,
            )
        )

    def global_batch_at(self, replicas: int) -> int:
        """Examples in one update of so many replicas."""
        if self.global_batch is not None:
            return self.global_batch
        assert self.per_replica_batch is not None  # one of the two is set
        return self.per_replica_batch * replicas

    def spec_of(self, arm: Arm, placement: Placement = THIS_MACHINE) -> RunSpec:
        """The run of an arm: on its backend, at its size, with its own settings.

        A hostfile spreads the processes over its hosts.

        Raises:
            RefusalError: settings that do not fit.
        """
        if arm.settings.slow_worker and arm.replicas == 1:
            raise RefusalError(
                "A slow worker is one of several.",
                received=arm.label,
                advice="Use --replicas 2 or more.",
            )
        own = {name: value for name, value in arm.settings if value is not None}
        shared = {name: getattr(self, name) for name in TrainingSpec.model_fields}
        shared |= with_values(TrainingSpec, own, self)
        if arm.capabilities.process_model == "single":
            topology = Topology(replicas_per_process=arm.replicas)
        else:
            topology = spread(Topology(processes_per_host=arm.replicas), placement)
        replica: Resources = shared.pop("resources")
        intra, inter = replica.intra_op_threads, replica.inter_op_threads
        in_process = topology.replicas_per_process
        return RunSpec(
            **shared,
            backend=arm.backend,
            options=arm.options,
            topology=topology,
            resources=Resources(
                cores_per_replica=replica.cores_per_replica,
                intra_op_threads=(intra or replica.cores_per_replica or 1) * in_process,
                inter_op_threads=None if inter is None else inter * in_process,
            ),
            global_batch=arm.global_batch or self.global_batch_at(arm.replicas),
            ablation=arm.ablation,
            save="record",
        )


class NotRun(Noun):
    """An arm that was asked for and cannot run here, and why."""

    label: str
    reason: str


class Asked(Noun):
    """How much is measured.

    Attributes:
        budget_s: after which no launch begins that would not fit, counted from the start of the
            screening and without certificates.
        launches: of the final; None: as the budget is divided. 0: there is no final.
        all_arms: every arm takes part in the final.
        price: of a host for an hour, in any currency; None: costs are not asked for.
    """

    budget_s: PositiveFloat = 255.0
    launches: NonNegativeInt | None = None
    all_arms: bool = False
    price: PositiveFloat | None = None


class Division(Noun):
    """How the time behind the screening was divided; seconds.

    Attributes:
        screening_s: that the screening took.
        launches: of the final, that are planned in all.
        phase_s: in which the arms of a launch train in turns; 0: each trains to its own end.
        start_s: what else a launch takes, as the screening saw it.
        pass_s: in which each arm of the final has one block, likewise.
        scatter: of the logarithm of two contenders' ratio from pass to pass, likewise.
        warm_passes: of each launch, that are warm-up, likewise.
    """

    screening_s: NonNegativeFloat
    launches: PositiveInt
    phase_s: NonNegativeFloat
    start_s: NonNegativeFloat
    pass_s: NonNegativeFloat
    scatter: NonNegativeFloat
    warm_passes: NonNegativeInt = 0


class Circumstances(Noun):
    """Under which runs are started, beside the machine: who goes on must find the same.

    Attributes:
        cores: processors that may be used, by their numbers.
        variables: names of what libraries take orders from: environment variables, configuration
            files, and the set of installed packages.
        variables_sha256: of those names with what they hold, which may be secret.
        folder: in which the command was typed, if a file is named relative to it; empty: none is.
    """

    cores: tuple[NonNegativeInt, ...]
    variables: tuple[str, ...]
    variables_sha256: str
    folder: str = ""


class Trial(Noun):
    """One setting that was tried for an arm before the experiment.

    Attributes:
        arm: the arm with that setting.
        tuned_from: label of the arm for which it was tried.
        run: what came of it; its position counts trials.
        chosen: whether it became the tuned arm.
        passed_over: why it did not, although no other setting left was faster; empty: it was not
            refused.
    """

    arm: Arm
    tuned_from: str
    run: Run
    chosen: bool = False
    passed_over: str = ""


class Comparison(Document):
    """Everything that a comparison saw; tables and plots are computed from it.

    Attributes:
        rounds: launches that were begun: number 0 is the screening, the others are the final.
        shared: what all arms share.
        asked: how much was to be measured.
        finalists: labels of the arms of the final; empty: the screening has not ended.
        division: of the time behind the screening; None: it has not ended, or there is no final.
        notes: what became of contenders that failed; an earlier comparison that says otherwise.
        spent_s: time since the start of the screening.
        ended_because: why there was no other launch, one sentence; empty: it was interrupted and
            can go on (`ringside compare --resume`).
        looks: how often it ended, or will have ended, so that somebody could read its words.
        trials: of the search for settings (`--tuned`).
        stages: parts of the input (`ringside input`); empty: they were not timed.
        communication: the newest measurement of collectives on this machine; None: there is none.
        certificates: one for each arm that was verified, by its label. An arm without one was never
            verified.
        verify: whether the arms were to be certified first.
        trials_each: of the search for settings, for each arm; 0: none was asked for.
        deadline_s: a run without progress for so long ended as hung.
        live: the arms of a round were live at the same time and trained in turns; else (`--fresh`)
            each ran alone, one after the other.
        code_version: of Ringside's code that made it, as in a certificate; empty: not known.
        circumstances: under which it was begun; None: not known.
        hosts: of the hostfile, in its order; empty: this machine. The first of them is `machine`.
        interface: name of the network interface that the stacks were given; None: all is on
            the launching machine.
        servers_on: hosts of parameter servers; empty: they took turns.
        oversubscribe: more replicas than cores on a host were meant.
        addresses: of the hosts that are used, by name, as they were found before anything ran.
        links: between them, measured before anything ran; empty: there is none.
        links_at_end: the same after the last round.
        input_examples_s: examples/s that the training data yield where one process reads them and
            nothing else runs; None: they are no data set, or it was not measured.
    """

    SCHEMA_VERSION: ClassVar[int] = 8

    name: str
    created_unix_s: UnixSeconds
    command: str
    machine: MachineFacts
    seed: NonNegativeInt
    shared: Shared
    rounds: NonNegativeInt
    arms: tuple[Arm, ...]
    not_run: tuple[NotRun, ...] = ()
    runs: tuple[Run, ...] = Field(default=())
    certificates: tuple[Certificate, ...] = ()
    asked: Asked = Asked()
    finalists: tuple[str, ...] = ()
    division: Division | None = None
    notes: tuple[str, ...] = ()
    spent_s: NonNegativeFloat = 0.0
    ended_because: str = ""
    looks: PositiveInt = 1
    trials: tuple[Trial, ...] = ()
    stages: tuple[InputStage, ...] = ()
    communication: Communication | None = None
    verify: bool = True
    trials_each: NonNegativeInt = 0
    deadline_s: PositiveFloat = 120.0
    live: bool = False
    code_version: str = ""
    circumstances: Circumstances | None = None
    hosts: tuple[Host, ...] = ()
    interface: str | None = None
    servers_on: tuple[str, ...] = ()
    oversubscribe: bool = False
    addresses: dict[str, str] = Field(default_factory=dict)
    links: tuple[Link, ...] = ()
    links_at_end: tuple[Link, ...] = ()
    input_examples_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _arms_are_named_once(self) -> Self:
        labels = [arm.label for arm in self.arms]
        if not labels:
            raise RefusalError("A comparison must have an arm.", received="arms=[]")
        if twice := _first_twice(labels):
            raise RefusalError("Each arm must have a label of its own.", received=f"{twice} twice")
        named = [(f"runs.{i}.arm", run.arm) for i, run in enumerate(self.runs)]
        named += [(f"trials.{i}.tuned_from", one.tuned_from) for i, one in enumerate(self.trials)]
        named += [(f"arms.{i}.twin_of", arm.twin_of) for i, arm in enumerate(self.arms)]
        named += [(f"finalists.{i}", label) for i, label in enumerate(self.finalists)]
        for place, label in named:
            if label and label not in labels:
                raise RefusalError(
                    "Each run, trial, twin and finalist must belong to an arm of the comparison.",
                    received=f"{place}={label!r}, and the arms are {', '.join(labels)}",
                )
        return self

    @model_validator(mode="after")
    def _runs_are_counted(self) -> Self:
        if twice := _first_twice([str(run.position) for run in self.runs]):
            raise RefusalError(
                "Each run must have a position of its own.", received=f"position {twice} twice"
            )
        if twice := _first_twice([f"{run.arm} in round {run.round}" for run in self.runs]):
            raise RefusalError("An arm runs once in a round.", received=f"{twice} twice")
        begun = max((run.round + 1 for run in self.runs), default=0)
        if self.rounds != begun:
            raise RefusalError(
                "The number of rounds must be that of the rounds of which there are runs.",
                received=f"rounds={self.rounds}, and the runs are of {begun}",
            )
        return self

    @model_validator(mode="after")
    def _certificates_are_of_its_hosts(self) -> Self:
        for one in self.certificates:
            if one.hosts != self.hosts:
                certified, ran = (_named(hosts) for hosts in (one.hosts, self.hosts))
                raise RefusalError(
                    "Certificates of a comparison must be of the hosts that it ran on.",
                    received=f"{one.arm.label} was verified on {certified}, the comparison is of "
                    f"{ran}",
                )
        return self

    def arms_of(self, number: int) -> tuple[Arm, ...]:
        """The arms of a launch: of the final its finalists, of the screening all but a twin."""
        if number:
            return tuple(arm for arm in self.arms if arm.label in self.finalists)
        return tuple(arm for arm in self.arms if not arm.twin_of)

    @property
    def placement(self) -> Placement:
        """Where the runs go."""
        same = {name: getattr(self, name) for name in Placement.model_fields}
        return Placement(**{**same, "hosts": self.hosts or None})

    def with_run(self, run: Run) -> Self:
        """With one more run."""
        return self.replace(runs=(*self.runs, run), rounds=max(self.rounds, run.round + 1))

    def spec_of(self, arm: Arm, number: int = 0) -> RunSpec:
        """The run of an arm in a launch: each has its own seed, the same for all arms.

        The screening has that of the first launch of the final.
        """
        spec = self.shared.spec_of(arm, self.placement)
        return spec.replace(seed=(spec.seed + max(0, number - 1)) % (MAX_SEED + 1))


def _named(hosts: Iterable[Host]) -> str:
    return ", ".join(f"{host.name} ({host.slots})" for host in hosts) or "one machine"


def _first_twice(names: Iterable[str]) -> str:
    """The first name that is there more than once; empty: none is."""
    return next((name for name, times in Counter(names).items() if times > 1), "")
