"""Command-line flags that build a RunSpec: the same for train.py and for `ringside`."""

import functools
import inspect
import shlex
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import typer

from ringside_core.specs import (
    LearningRateRule,
    PipelineOptions,
    RefusalError,
    Resources,
    RunSpec,
    Surroundings,
    Topology,
    backend_options,
    capabilities_of,
    parse_option,
)
from ringside_core.specs.keras_version import KerasVersion
from ringside_core.specs.run_spec import MAX_SEED, Option, Policy, Precision, TrainedBy
from ringside_core.workloads.registry import (
    DEFAULT,
    check_modules_beside,
    check_name,
    keras_of,
    must_train_all_fits,
    ready,
    script_words,
)


def _number_type(text: str) -> str:
    """float32 or float64; `ringside compare` once took the width of intervals by this name."""
    if text in get_args(Precision):
        return text
    raise RefusalError(
        "--precision must be float32 or float64.",
        received=repr(text),
        advice="The width of the intervals of `ringside compare` is --interval-width.",
    )


def spec_from_flags(
    surroundings: Surroundings,
    *,
    script: Annotated[
        list[str] | None,
        typer.Argument(
            show_default=False,
            help="In the place of --workload: file.py:function, or a script that calls "
            "ringside.fit, whose own flags stand behind --.",
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="auto: the backend of the launcher; without a launcher, serial.")
    ] = "auto",
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Copies of the model. Default: as launched.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            help=f"A name, path/to/file.py:function or package.module:function. Default: {DEFAULT}."
        ),
    ] = None,
    workload_option: Annotated[
        list[str] | None,
        typer.Option(
            "-w", "--workload-option", help="Option of the workload, name=value, repeatable."
        ),
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder of the data sets.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="Option of the backend, name=value, repeatable."),
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, help="Examples in one update. Default: the workload's.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Default: the workload's.")] = None,
    gradient_accumulation_steps: Annotated[
        int, typer.Option(min=1, help="Passes in which a replica runs its part of one update.")
    ] = 1,
    learning_rate_rule: Annotated[
        Literal["none", "linear", "sqrt"],
        typer.Option(help="How the learning rate follows the global batch."),
    ] = "none",
    warmup_epochs: Annotated[
        int, typer.Option(min=0, help="Epochs of linear warm-up to that rate.")
    ] = 0,
    precision: Annotated[
        Any,  # typer takes no parser beside a Literal
        typer.Option(parser=_number_type, metavar="[float32|float64]", help="Number type."),
    ] = "float32",
    shard: Annotated[
        Literal["batch", "file", "data", "off"],
        typer.Option(help="How replicas share the input; file, data and off need --no-cache."),
    ] = "batch",
    cache: Annotated[bool, typer.Option(help="Read the data into memory once.")] = True,
    shuffle: Annotated[
        bool | None,
        typer.Option(help="A new order in each epoch. Default: as the data's author has it."),
    ] = None,
    shuffle_buffer: Annotated[
        int, typer.Option(min=1, help="Elements held by the shuffle of a stream (--no-cache).")
    ] = 4096,
    parallel_map: Annotated[
        int | None,
        typer.Option(
            min=1, help="Calls of the input under way for each replica. Default: as it has cores."
        ),
    ] = None,
    interleave_files: Annotated[int, typer.Option(min=1, help="Files read in parallel.")] = 1,
    filter: Annotated[
        str | None, typer.Option(help="file.py:function or module:function, element → bool.")
    ] = None,
    prefetch: Annotated[
        int, typer.Option(min=0, help="Batches prepared ahead of each replica.")
    ] = 2,
    cores_per_replica: Annotated[
        int | None, typer.Option(min=1, help="Pin each process to this many cores per replica.")
    ] = None,
    intra_op_threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of TensorFlow within one operation.")
    ] = None,
    inter_op_threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of TensorFlow over operations.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Of the weights and the shuffle.")
    ] = 1,
    save: Annotated[
        Literal["record", "all"],
        typer.Option(help="all: checkpoint, TensorBoard log and model.keras too."),
    ] = "all",
    resume_from: Annotated[
        str | None,
        typer.Option(
            "--resume-from",
            "--resume",
            help="checkpoint.npz of an earlier run. auto: the newest whole one in the folder of "
            "this run; if there is none, begin.",
        ),
    ] = None,
    ledger: Annotated[
        Literal["digest", "full"],
        typer.Option(help="full: record which example was fed where and when."),
    ] = "digest",
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Also write a checkpoint after every so many updates.")
    ] = None,
    steps_per_execution: Annotated[
        int, typer.Option(min=1, help="Updates in one call of the training function.")
    ] = 1,
    jit_compile: Annotated[bool, typer.Option(help="Compile the training step by XLA.")] = False,
    trained_by: Annotated[
        TrainedBy | None,
        typer.Option(
            help="fit: Keras' Model.fit. loop: a written-out loop with a gradient tape. Default: "
            "fit; of Keras 3 loop."
        ),
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="Keras' dtype policy. Default: as the author says.")
    ] = None,
    keras: Annotated[
        int | None,
        typer.Option(
            min=2, max=3, help="2: legacy Keras. 3: Keras 3. Default: what the file imports, or 2."
        ),
    ] = None,
) -> RunSpec:
    """Build the spec of a run from flags. What no flag gives comes from the launcher.

    The help of each flag says what it means.

    Raises:
        RefusalError: flags that do not fit together.
    """
    name = surroundings.default_backend if backend == "auto" else backend
    capabilities_of(name)
    workload = _named(script or [], workload)
    check_name(workload)
    workload_options = {
        key: _scalar(value) for key, value in map(parse_option, workload_option or [])
    }
    if global_batch is None or epochs is None:
        defaults = ready(workload, workload_options)
        global_batch, epochs = global_batch or defaults.global_batch, epochs or defaults.epochs
    if filter is not None:
        check_modules_beside(filter)
    own = dict(map(parse_option, option or []))
    if surroundings.task is not None and surroundings.task.cluster.ps:
        own.setdefault("servers", str(len(surroundings.task.cluster.ps)))
    options, version = backend_options(name, own), _keras(workload, keras)
    if save == "all" and script_words(workload):
        must_train_all_fits(workload_options)
    surroundings = surroundings.placed(name, servers=options.num_servers)
    return RunSpec(
        workload=workload,
        workload_options=workload_options,
        data_dir=data_dir,
        backend=name,
        options=options,
        topology=topology_for(name, replicas, surroundings),
        global_batch=global_batch,
        epochs=epochs,
        gradient_accumulation_steps=gradient_accumulation_steps,
        learning_rate_rule=LearningRateRule(rule=learning_rate_rule, warmup_epochs=warmup_epochs),
        precision=precision,
        pipeline=PipelineOptions(
            shard=shard,
            cache=cache,
            shuffle=shuffle,
            shuffle_buffer=shuffle_buffer,
            parallel_map=parallel_map,
            interleave_files=interleave_files,
            filter=filter,
            prefetch=prefetch,
        ),
        resources=Resources(
            cores_per_replica=cores_per_replica,
            intra_op_threads=intra_op_threads,
            inter_op_threads=inter_op_threads,
        ),
        seed=seed,
        save=save,
        resume_from=resume_from,
        ledger=ledger,
        checkpoint_steps=checkpoint_steps,
        steps_per_execution=steps_per_execution,
        jit_compile=jit_compile,
        trained_by=trained_by or ("fit" if version == 2 else "loop"),
        keras=version,
        policy=policy,
    )


def _keras(workload: str, asked: int | None) -> KerasVersion:
    """The Keras of a run: what a user's file imports decides."""
    imported = keras_of(workload)
    if imported is not None and asked not in (None, imported):
        raise RefusalError(
            "A file of yours says by its imports which Keras it is for: `import keras` means "
            "Keras 3, `import tf_keras` or tf.keras alone legacy Keras.",
            received=f"--keras {asked}, and {workload} is for Keras {imported}",
            advice="Leave out --keras.",
        )
    return imported or (3 if asked == 3 else 2)


def _named(script: list[str], workload: str | None) -> str:
    """The workload that the words of a script or --workload name."""
    if not script:
        return workload or DEFAULT
    if workload is not None:
        raise RefusalError(
            "A run has one workload.",
            received=f"{script[0]} beside --workload {workload}",
            advice="Leave one of them out.",
        )
    if len(script) > 1 and not script[0].endswith(".py"):
        raise RefusalError(
            "Only a script has arguments of its own.",
            received=" ".join(script),
            advice="A script's name ends with .py. A function's options are -w name=value.",
        )
    return shlex.join(script) if script[0].endswith(".py") else script[0]


def topology_for(backend: str, replicas: int | None, surroundings: Surroundings) -> Topology:
    """Processes and replicas: as launched; without a launcher as asked for, else one."""
    if capabilities_of(backend).process_model == "single":
        if surroundings.size > 1:
            return Topology(processes_per_host=surroundings.size)  # RunSpec refuses it
        return Topology(replicas_per_process=replicas or 1)
    if surroundings.kind == "alone":
        return Topology(processes_per_host=replicas or 1)
    size, local = surroundings.size, surroundings.local_size
    if replicas is not None and replicas != size:
        raise RefusalError(
            "--replicas must be the number of processes that were launched.",
            received=f"--replicas {replicas}, {size} launched",
            advice="Leave out --replicas.",
        )
    if size % local:
        return Topology(processes_per_host=size)  # hosts with unequal slots
    return Topology(hosts=size // local, processes_per_host=local)


def with_spec_flags(
    surroundings: Callable[[], Surroundings], *, without: tuple[str, ...] = (), **fixed: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a typer command every flag of a RunSpec; it receives `spec` in their place.

    Args:
        surroundings: called when the command runs.
        without: flags that the command does not have.
        fixed: values of such flags.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        every = list(inspect.signature(spec_from_flags).parameters.values())[1:]
        flags = [flag for flag in every if flag.name not in (*without, *fixed)]
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "spec"]
        names = {flag.name for flag in flags}

        @functools.wraps(command)
        def wrapper(**values: Any) -> Any:
            spec = spec_from_flags(
                surroundings(), **fixed, **{key: v for key, v in values.items() if key in names}
            )
            return command(spec=spec, **{k: v for k, v in values.items() if k not in names})

        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *flags)]
        )
        wrapper.__annotations__ = {p.name: p.annotation for p in (*own, *flags)}
        return wrapper

    return decorate


def _scalar(text: str) -> Option:
    """A typed workload option: 3 → int, 0.5 → float, true → bool, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
