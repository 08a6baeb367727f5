"""Comparison: arms, the order in which they ran, and every record. Statistics come later."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from ringside_core.specs.arm import Arm
from ringside_core.specs.certificate import Certificate, DetectionMatrix
from ringside_core.specs.communication import Communication, Link
from ringside_core.specs.errors import RefusalError
from ringside_core.specs.hostfile import Host
from ringside_core.specs.noun import Document, Noun, UnixSeconds, differences
from ringside_core.specs.record import MachineFacts, Outcome, RunRecord
from ringside_core.specs.run_spec import RunSpec


class NotRun(Noun):
    """An arm that was asked for and cannot run here, and why."""

    label: str
    reason: str


class Load(Noun):
    """What else the machine did during a run, on the processors that the run could use.

    Attributes:
        wall_s: length of the look.
        cores: processors that were looked at.
        others_cpu_s: CPU time of processes that do not belong to the run.
        steal_cpu_s: time for which the hypervisor gave a processor to somebody else.
        swapped_bytes: read from and written to swap, by the whole machine.
    """

    wall_s: PositiveFloat
    cores: PositiveInt
    others_cpu_s: NonNegativeFloat
    steal_cpu_s: NonNegativeFloat
    swapped_bytes: NonNegativeInt = 0


class Run(Noun):
    """One execution of one arm.

    Attributes:
        round: 0-based; one pass over all arms.
        position: 0-based place in the order in which runs were really started.
        spec: what was run.
        outcome: of the whole run; a process that died without a record is in it.
        wall_s: from the start of the first process to the end of the last.
        records: one for each process that wrote one.
        last_lines: the end of the output of the process that explains a failure.
        log_dir: where the output of every process is, relative to the comparison's folder.
        load: what else the machine did; None: nobody looked.
    """

    arm: str
    round: NonNegativeInt
    position: NonNegativeInt
    spec: RunSpec
    outcome: Outcome
    wall_s: NonNegativeFloat
    records: tuple[RunRecord, ...]
    log_dir: str
    last_lines: tuple[str, ...] = ()
    load: Load | None = None

    @model_validator(mode="after")
    def _a_completed_run_left_something(self) -> Self:
        if self.outcome.completed and not self.records:
            raise RefusalError("A completed run must have records.", received="none")
        if self.outcome.completed and not self.wall_s:
            raise RefusalError(
                "A completed run must have taken time.", received=f"wall_s={self.wall_s}"
            )
        return self

    @model_validator(mode="after")
    def _records_are_of_this_run(self) -> Self:
        for index, record in enumerate(self.records):
            if record.spec != self.spec:
                theirs, own = (one.model_dump(mode="json") for one in (record.spec, self.spec))
                path, found, expected = next(differences(theirs, own))
                raise RefusalError(
                    "Each record of a run must be of the run's own spec.",
                    received=f"records.{index}.spec.{path}={found!r}, and the run has {expected!r}",
                )
        return self


class Rounds(Noun):
    """How many rounds an experiment makes.

    Attributes:
        least: undisturbed rounds that are made whatever they show.
        most: rounds after which it ends, disturbed ones included.
        precision: it ends when the 95 % interval of every ratio of interest is at most this wide,
            as a share of the ratio: 0.02 is ±1 %. None: only `most` and the budget end it.
        budget_s: no round is begun that would probably end later than so many seconds after the
            first one began. None: no budget.
    """

    least: PositiveInt = 3
    most: PositiveInt = 3
    precision: PositiveFloat | None = None
    budget_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _least_are_among_most(self) -> Self:
        if self.least > self.most:
            raise RefusalError(
                "The most rounds must be no fewer than the least.",
                received=f"least={self.least}, most={self.most}",
            )
        return self


class Circumstances(Noun):
    """Under which runs are started, beside the machine: who goes on must find the same.

    Attributes:
        cores: processors that may be used, by their numbers.
        variables: names of the environment variables that libraries take orders from.
        variables_sha256: of those names with their values, which may be secret.
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
    """

    arm: Arm
    tuned_from: str
    run: Run
    chosen: bool = False


class Comparison(Document):
    """Everything that a comparison saw; tables and plots are computed from it.

    Attributes:
        rounds: that were begun.
        base: what every arm trains; backend, topology, threads and batch are the arm's. None: from
            a file of before version 3.
        scaling: `strong`: the global batch is the same at every size. `weak`: each replica's is.
        asked: how many rounds were to be made.
        ended_because: why there were no more rounds, one sentence; empty: it was interrupted and
            can go on (`ringside compare --resume`).
        trials: of the search for settings (`--tuned`).
        communication: the newest measurement of collectives on this machine; None: there is none.
        certificates: one for each arm that was verified, by its label. An arm without one was never
            verified.
        detection: what the gate did with deliberate mistakes; None: it was not asked.
        verify: whether the arms were to be certified first.
        trials_each: of the search for settings, for each arm; 0: none was asked for.
        deadline_s: a run without progress for so long ended as hung.
        code_version: of Ringside's code that made it, as in a certificate; empty: not known.
        circumstances: under which it was begun; None: not known.
        hosts: of the hostfile, in its order; empty: this machine. The first of them is `machine`.
        interface: name of the network interface that the stacks were told to use; None: all is on
            the launching machine.
        servers_on: hosts of parameter servers; empty: they took turns.
        oversubscribe: more replicas than cores on a host were meant.
        addresses: of the hosts that are used, by name, as they were found before anything ran.
        links: between them, measured before anything ran; empty: there is none.
        links_at_end: the same after the last round.

    Schema history: 1 first version. 2 certificates and detection; files of version 1 are read as
    never verified. 3 rounds until a precision, load, twins, breakdown arms, tuning,
    communication; older files are read as ended after their rounds. 4 hosts and the links between
    them; older files are of one machine.
    """

    SCHEMA_VERSION: ClassVar[int] = 4

    name: str
    created_unix_s: UnixSeconds
    command: str
    machine: MachineFacts
    seed: NonNegativeInt
    rounds: NonNegativeInt
    arms: tuple[Arm, ...]
    not_run: tuple[NotRun, ...] = ()
    runs: tuple[Run, ...] = Field(default=())
    certificates: tuple[Certificate, ...] = ()
    detection: DetectionMatrix | None = None
    base: RunSpec | None = None
    scaling: Literal["strong", "weak"] = "strong"
    asked: Rounds = Rounds()
    ended_because: str = ""
    trials: tuple[Trial, ...] = ()
    communication: Communication | None = None
    verify: bool = True
    trials_each: NonNegativeInt = 0
    deadline_s: PositiveFloat = 120.0
    code_version: str = ""
    circumstances: Circumstances | None = None
    hosts: tuple[Host, ...] = ()
    interface: str | None = None
    servers_on: tuple[str, ...] = ()
    oversubscribe: bool = False
    addresses: dict[str, str] = Field(default_factory=dict)
    links: tuple[Link, ...] = ()
    links_at_end: tuple[Link, ...] = ()

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
        for place, label in named:
            if label and label not in labels:
                raise RefusalError(
                    "Each run, trial and twin must belong to an arm of the comparison.",
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

    @classmethod
    def _migrated(cls, body: dict[str, Any], version: int) -> tuple[dict[str, Any], int]:
        if version in (1, 2):
            rounds = body.get("rounds")  # that were asked for; in version 3: that were begun
            begun = [
                r["round"] for r in body.get("runs") or () if isinstance(r, dict) and "round" in r
            ]
            body = {
                **body,
                "rounds": max((n + 1 for n in begun if isinstance(n, int)), default=0),
                "asked": {"least": rounds, "most": rounds},
                "ended_because": "All rounds that were asked for were made.",
            }
            version = 3
        return body, 4 if version == 3 else version


def _named(hosts: Iterable[Host]) -> str:
    return ", ".join(f"{host.name} ({host.slots})" for host in hosts) or "one machine"


def _first_twice(names: Iterable[str]) -> str:
    """The first name that is there more than once; empty: none is."""
    return next((name for name, times in Counter(names).items() if times > 1), "")
