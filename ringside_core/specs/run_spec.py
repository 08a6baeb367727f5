"""RunSpec: everything that defines one training run, and nothing else."""

import math
import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, SerializeAsAny, model_validator

from ringside_core.specs.backends import Capabilities, backend_row, with_typed_options
from ringside_core.specs.errors import RefusalError
from ringside_core.specs.input_change import InputName
from ringside_core.specs.keras_version import KerasVersion
from ringside_core.specs.knob import Knob, Search
from ringside_core.specs.noun import Document, Noun
from ringside_core.specs.options import BackendOptions
from ringside_core.specs.topology import Topology

Precision = Literal["float32", "float64"]
Policy = Literal["mixed_float16", "mixed_bfloat16"]
Option = str | int | float | bool
# What a diagnostic run leaves out, to see how much time that takes; see RunSpec.
Ablation = Literal["none", "unused", "no_reduction", "no_input", "no_training"]
MAX_SEED = 2**31 - 1
AUTO = "auto"  # as `resume_from`


class LearningRateRule(Noun):
    """How the workload's learning rate follows the global batch.

    `linear` multiplies it by global_batch ÷ the workload's reference batch (Goyal et al. 2017,
    arXiv:1706.02677), `sqrt` by the square root of that. It depends on the global batch alone, so
    every backend trains at the same rate.
    """

    rule: Annotated[
        Literal["none", "linear", "sqrt"],
        Knob("How the learning rate follows the global batch.", ("--learning-rate-rule",)),
    ] = "none"
    warmup_epochs: Annotated[NonNegativeInt, Knob("Epochs of linear warm-up to that rate.")] = 0

    @model_validator(mode="after")
    def _warm_up_leads_somewhere(self) -> Self:
        if self.warmup_epochs and self.rule == "none":
            raise RefusalError(
                "A warm-up needs a rule, linear or sqrt.",
                received=f"warmup_epochs={self.warmup_epochs} with rule={self.rule!r}",
                advice="Add --learning-rate-rule linear, or leave out --warmup-epochs.",
            )
        return self

    def factor(self, *, global_batch: int, reference_batch: int) -> float:
        """The factor of the base learning rate after warm-up."""
        ratio = global_batch / reference_batch
        return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[self.rule]


class Resources(Noun):
    """Cores for each replica, and threads of one process; None: not pinned, TensorFlow's choice.

    A process is pinned to the cores of all its replicas. In `Shared` threads are of one replica.
    """

    cores_per_replica: Annotated[
        PositiveInt | None, Knob("Pin each process to this many cores per replica.")
    ] = None
    intra_op_threads: Annotated[
        PositiveInt | None, Knob("Threads of TensorFlow within one operation.", per_arm=True)
    ] = None
    inter_op_threads: Annotated[
        PositiveInt | None,
        Knob("Threads of TensorFlow over operations.", per_arm=True),
        Search((1, 4)),
    ] = None


class TrainingSpec(Noun):
    """What is trained and how, without the batch, the backend and the place.

    A field with a `Knob` is the only declaration of a knob: flags (launch/flags.py), the settings
    of an arm, what arms must share and what `--tuned` tries are made from it.

    `workload`: commands have their own default (`workloads/registry.py`); this one is of specs of
    which nothing is trained. With `gradient_accumulation_steps` the global batch is still the rows
    of one update. With `steps_per_execution` times are known only at the end of each call. `policy`
    is for a model whose author sets none; without one, layers compute in `precision`.
    `authors_batch`: the global batch that a program was seen to have; None: it was not looked at.
    Its data get other batches only where the run's global batch is another.
    """

    workload: Annotated[
        str,
        Knob(
            "A name, path/to/file.py:function or package.module:function. Default: digits-large.",
            open=True,
        ),
    ] = "digits"
    workload_options: Annotated[
        dict[str, Option],
        Knob(
            "Option of the workload, name=value, repeatable.",
            ("--workload-option", "-w"),
            open=True,
        ),
    ] = Field(default_factory=dict)
    data_dir: Annotated[str | None, Knob("Folder of the data sets.")] = None
    epochs: Annotated[PositiveInt, Knob("Default: the workload's.", open=True)]
    gradient_accumulation_steps: Annotated[
        PositiveInt, Knob("Passes in which a replica runs its part of one update.")
    ] = 1
    learning_rate_rule: LearningRateRule = LearningRateRule()
    precision: Annotated[Precision, Knob("Number type.")] = "float32"
    resources: Resources = Resources()
    seed: Annotated[int, Field(ge=0, le=MAX_SEED), Knob("Of the weights and the shuffle.")] = 1
    steps_per_execution: Annotated[
        PositiveInt,
        Knob("Updates in one call of the training function.", per_arm=True),
        Search((5, 20)),
    ] = 1
    jit_compile: Annotated[
        bool, Knob("Compile the training step by XLA.", per_arm=True), Search((True,))
    ] = False
    keras: Annotated[
        KerasVersion,
        Knob(
            "2: legacy Keras. 3: Keras 3. Default: what the file imports, or 2.",
            open=True,
            per_arm=True,
        ),
    ] = 2
    authors_batch: Annotated[PositiveInt | None, Knob()] = None
    policy: Annotated[
        Policy | None, Knob("Keras' dtype policy. Default: as the author says.", per_arm=True)
    ] = None
    metrics: Annotated[
        Literal["each_epoch", "each_step"] | None,
        Knob(
            "When they are added over replicas. Default: as Keras' own fit, under a strategy "
            "each_step.",
            per_arm=True,
        ),
    ] = None
    slow_worker: Annotated[
        float | None,
        Field(gt=0, lt=1),
        Knob("Part of its speed that the last worker gets: 0.33.", per_arm=True),
    ] = None
    input: Annotated[
        InputName | None,
        Knob("A change of how the data are read, as `ringside input` tries it.", per_arm=True),
    ] = None

    @property
    def arithmetic(self) -> tuple[KerasVersion, Policy | None]:
        """What runs must share, beside the workload, to compute the same."""
        return self.keras, self.policy


class RunSpec(TrainingSpec, Document):
    """One training run: the only thing that travels from a launcher to train.py.

    Attributes:
        ablation: what the run leaves out (the usual word of machine learning), to see what that
            costs. Breakdowns (`ringside.stats.breakdown`) use such runs; they are never ranked.
            `unused`: the backend is started, and the training does not use it (one replica).
            `no_reduction`: gradients are not combined over replicas. `no_input`: one batch,
            prepared before the first step, is fed again and again. `no_training`: batches are
            read, and nothing is trained on them.
    """

    SCHEMA_VERSION: ClassVar[int] = 5

    backend: str
    options: SerializeAsAny[BackendOptions]
    topology: Topology
    global_batch: Annotated[
        PositiveInt, Knob("Examples in one update. Default: the workload's.", open=True)
    ]
    save: Annotated[
        Literal["record", "all"],
        Knob("all: checkpoint, TensorBoard log and model.keras too.", one_run=True),
    ] = "all"
    resume_from: Annotated[
        str | None,
        Knob(
            "checkpoint.npz of an earlier run. auto: the newest whole one in the folder of this "
            "run; if there is none, begin.",
            ("--resume-from", "--resume"),
            one_run=True,
        ),
    ] = None
    checkpoint_steps: Annotated[
        PositiveInt | None,
        Knob("Also write a checkpoint after every so many updates.", one_run=True),
    ] = None
    ablation: Ablation = "none"

    _type_the_options = model_validator(mode="before")(with_typed_options)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._check_backend()
        self._check_ablation()
        self._check_steps()
        if self.input in ("cache_file", "snapshot") and not self.capabilities.synchronous:
            raise RefusalError(
                "Workers of parameter servers share one file name.",
                received=f"input={self.input} under {self.backend}",
                advice="Use input=cache, or another backend.",
            )
        if self.metrics == "each_step" and not self.capabilities.synchronous:
            raise RefusalError(
                "Workers of parameter servers make no step together.",
                received=f"metrics={self.metrics} under {self.backend}",
                advice="Use metrics=each_epoch, or another backend.",
            )
        if self.slow_worker and self.topology.replicas_per_process > 1:
            raise RefusalError(
                "A worker that is to be slower must be a process of its own.",
                received=f"slow_worker={self.slow_worker:g} under {self.backend}, whose replicas "
                "are in one process",
                advice="Use multi_worker_mirrored, horovod or parameter_server.",
            )
        return self

    def _check_backend(self) -> None:
        capabilities, topology = self.capabilities, self.topology
        if capabilities.always_one_replica and topology.num_replicas != 1:
            raise RefusalError(
                f"The backend {self.backend} always has one replica.",
                received=f"{topology.num_replicas} replicas",
                advice="Use --replicas 1, or another backend.",
            )
        if capabilities.process_model == "single" and topology.num_processes != 1:
            raise RefusalError(
                f"The backend {self.backend} runs in one process.",
                received=f"{topology.num_processes} processes",
                advice="Start it as: python train.py "
                f"--backend {self.backend} --replicas {topology.num_replicas}",
            )
        if capabilities.process_model != "single" and topology.replicas_per_process != 1:
            raise RefusalError(
                f"The backend {self.backend} has one replica in each process.",
                received=f"replicas_per_process={topology.replicas_per_process}",
            )
        if type(self.options) is not backend_row(self.backend).options:
            raise RefusalError(
                "The options must be those of the backend.",
                received=f"{type(self.options).__name__} for {self.backend}",
            )
        if not (capabilities.one_model or self.ablation == "no_reduction"):
            raise RefusalError(
                "All replicas of a run must train one model.",
                received=f"backend {self.backend}, which trains one for each replica",
                advice="Use another backend. ringside compare --why runs this one beside the "
                "others.",
            )

    def _check_ablation(self) -> None:
        leaves_something = self.save != "record" or self.resume_from
        if self.ablation != "none" and leaves_something:
            raise RefusalError(
                "A run with an ablation is timed and leaves nothing else behind.",
                received=f"ablation={self.ablation!r} with save={self.save!r}, "
                f"resume_from={self.resume_from!r}",
                advice="Use --save record, without --resume-from.",
            )
        if self.ablation == "unused" and self.topology.num_replicas != 1:
            raise RefusalError(
                "ablation='unused' is for one replica only.",
                received=f"ablation='unused' with {self.topology.num_replicas} replicas",
            )
        received = ""  # why there is no reduction that could be left out
        if self.topology.num_replicas == 1:
            received = "one replica, which has no other to share gradients with"
        elif not self.capabilities.synchronous:
            received = (
                f"{self.backend}, in which each worker's gradients are an update of their own"
            )
        if self.ablation == "no_reduction" and received:
            raise RefusalError(
                "ablation='no_reduction' needs a run whose replicas reduce gradients in each step.",
                received=received,
            )

    def _check_steps(self) -> None:
        """Checkpoints and executions of several steps end where all readers stand."""
        every, at_once = self.checkpoint_steps, self.steps_per_execution
        in_turn = 1 if self.capabilities.synchronous else self.topology.num_processes
        if every is not None and self.save != "all":
            raise RefusalError(
                "Checkpoints within an epoch need checkpoints at all.",
                received=f"checkpoint_steps={every} with save={self.save!r}",
                advice="Use --save all, or leave out --checkpoint-steps.",
            )
        if not self.capabilities.synchronous:
            for flag, asked in (
                ("--checkpoint-steps", every is not None),
                ("--gradient-accumulation-steps", self.gradient_accumulation_steps > 1),
            ):
                if asked:
                    raise RefusalError(
                        "Workers that update on their own make an update of each batch, and are "
                        "saved at the end of an epoch.",
                        received=f"{flag} with {self.backend}",
                        advice=f"Leave out {flag}.",
                    )
        if at_once > 1 and in_turn > 1:
            raise RefusalError(
                "Several workers that train asynchronously make one update in each execution.",
                received=f"steps_per_execution={at_once}, {in_turn} workers",
                advice="Use steps_per_execution=1, or one worker.",
            )
        several = self.topology.num_replicas > 1 and self.capabilities.family == "tf.distribute"
        if at_once > 1 and self.keras == 3 and several:
            raise RefusalError(
                "Keras 3 makes one update in each execution under a strategy of several replicas: "
                "its own fit fails there with more.",
                received=f"steps_per_execution={at_once}, {self.backend}",
                advice="Use steps_per_execution=1.",
            )
        if every is not None and every % at_once:
            raise RefusalError(
                "checkpoint_steps must be a multiple of steps_per_execution.",
                received=f"checkpoint_steps={every}, steps_per_execution={at_once}",
            )

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is able to do."""
        return backend_row(self.backend).capabilities

    @property
    def merges_each_step(self) -> bool:
        """Whether metrics are added over replicas in each step, as legacy Keras' own fit does."""
        able = self.capabilities
        as_keras = able.family == "tf.distribute" and able.synchronous and self.keras == 2
        return as_keras if self.metrics is None else self.metrics == "each_step"

    @property
    def has_one_result(self) -> bool:
        """Whether its updates have one right result: it is synchronous, or has one replica."""
        return self.capabilities.synchronous or self.topology.num_replicas == 1

    @property
    def workload_name(self) -> str:
        """The workload as a part of a file's name: without its folder."""
        first, *rest = self.workload.split(" ", 1)
        return re.sub(r"[^\w=-]+", "-", " ".join([first.rpartition("/")[2], *rest]))[:60]

    @property
    def run_name(self) -> str:
        """A readable name that is the same on every host: workload, arm and content hash."""
        arm = f"{self.backend}-{self.topology.num_replicas}r"
        # A run that goes on has the folder in which it began.
        begun = self.replace(resume_from=None) if self.resume_from == AUTO else self
        return f"{self.workload_name}-{arm}-{begun.content_hash[:8]}"
