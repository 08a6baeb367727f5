"""Command-line flags that build a RunSpec: the same for train.py and for `ringside`."""

import functools
import inspect
import shlex
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le

from ringside_core.specs import (
    RefusalError,
    RunSpec,
    Surroundings,
    Topology,
    backend_options,
    capabilities_of,
    parse_option,
)
from ringside_core.specs.keras_version import KerasVersion
from ringside_core.specs.knob import KnobField, knobs, with_values
from ringside_core.specs.run_spec import Option
from ringside_core.workloads.registry import (
    DEFAULT,
    check_name,
    keras_of,
    must_train_all_fits,
    ready,
)

Script = Annotated[
    list[str] | None,
    typer.Argument(
        show_default=False,
        help="Instead of --workload: file.py:function, or a script that calls ringside.fit, "
        "whose own flags stand behind --.",
    ),
]
WIDE = 40  # choices that are longer make a help that is wider than a terminal
BackendName = Annotated[
    str, typer.Option(help="auto: the backend of the launcher; without a launcher, serial.")
]
Replicas = Annotated[
    int | None, typer.Option(min=1, help="Copies of the model. Default: as launched.")
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", help="Option of the backend, name=value, repeatable."),
]


def spec_from_flags(
    surroundings: Surroundings,
    *,
    script: Script = None,
    backend: BackendName = "auto",
    replicas: Replicas = None,
    option: BackendOption = None,
    **values: Any,
) -> RunSpec:
    """Build the spec of a run from flags. What no flag gives comes from the launcher.

    Raises:
        RefusalError: flags that do not fit together.
    """
    name = surroundings.default_backend if backend == "auto" else backend
    capabilities_of(name)
    given = {key: value for key, value in values.items() if value is not None}
    workload = _named(script or [], given.get("workload"))
    check_name(workload)
    workload_options = {
        key: _scalar(value) for key, value in map(parse_option, given.get("workload_option", ()))
    }
    authors_batch = None
    if not {"global_batch", "epochs"} <= given.keys():
        defaults = ready(workload, workload_options, given.get("data_dir"))
        authors_batch = defaults.global_batch
        given = {"global_batch": defaults.global_batch, "epochs": defaults.epochs} | given
    own = dict(map(parse_option, option or []))
    if surroundings.task is not None and surroundings.task.cluster.ps:
        own.setdefault("servers", str(len(surroundings.task.cluster.ps)))
    options, version = backend_options(name, own), _keras(workload, given.get("keras"))
    if given.get("save", "all") == "all":
        must_train_all_fits(workload, workload_options)
    surroundings = surroundings.placed(name, servers=options.num_servers)
    found = {"workload": workload, "workload_option": workload_options, "keras": version}
    return RunSpec(
        backend=name,
        options=options,
        topology=topology_for(name, replicas, surroundings),
        authors_batch=authors_batch,
        **with_values(RunSpec, given | found),
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


def spec_flags(
    surroundings: Callable[[], Surroundings] = Surroundings,
    *,
    several_arms: bool = False,
    without: tuple[str, ...] = (),
    **fixed: Any,
) -> Callable[..., RunSpec]:
    """A function of every flag of a RunSpec that builds it, for `with_flags`.

    Args:
        surroundings: called when the command runs.
        several_arms: without the flags of one run; the spec is that of the serial run.
        without: flags that the command does not have.
        fixed: values of such flags.
    """
    if several_arms:
        fixed = {"backend": "serial", "save": "record", **fixed}
        without = (*without, "replicas", "option", *(k.name for k in _FLAGS if k.knob.one_run))
    own = list(inspect.signature(spec_from_flags).parameters.values())[1:-1]
    flags = [*own, *map(_parameter, _FLAGS)]

    def build(**values: Any) -> RunSpec:
        return spec_from_flags(surroundings(), **fixed, **values)

    build.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [flag for flag in flags if flag.name not in (*without, *fixed)]
    )
    return build


def with_flags(**groups: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a typer command the flags of whole values.

    Each group is a function whose parameters are flags; the command receives what it returns:
    `@with_flags(spec=spec_flags(), placement=placement_from)`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        flags = {name: inspect.signature(group).parameters for name, group in groups.items()}
        own = [p for n, p in inspect.signature(command).parameters.items() if n not in groups]
        every = [*own, *(flag for group in flags.values() for flag in group.values())]

        @functools.wraps(command)
        def wrapper(**given: Any) -> Any:
            built = {
                name: groups[name](**{flag: given.pop(flag) for flag in group})
                for name, group in flags.items()
            }
            return command(**given, **built)

        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [flag.replace(kind=inspect.Parameter.KEYWORD_ONLY) for flag in every]
        )
        wrapper.__annotations__ = {flag.name: flag.annotation for flag in every}
        return wrapper

    return decorate


def _parameter(knob: KnobField) -> inspect.Parameter:
    """The flag of a knob."""
    kind: Any = knob.field.annotation
    constraints = list(knob.field.metadata)
    if get_origin(kind) in (Union, UnionType):
        (kind,) = set(get_args(kind)) - {type(None)}
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        constraints += more
    bounds: dict[str, Any] = {}
    for one in constraints if kind is int else ():  # what a float must be, the spec says
        if isinstance(one, Ge | Gt):
            bounds["min"] = one.ge if isinstance(one, Ge) else one.gt + 1  # type: ignore[operator]
        elif isinstance(one, Le):
            bounds["max"] = one.le
    if get_origin(kind) is dict:
        kind = list[str]
    elif get_origin(kind) is Literal and all(isinstance(x, int) for x in get_args(kind)):
        bounds, kind = {"min": min(get_args(kind)), "max": max(get_args(kind))}, int
    elif get_origin(kind) is Literal and len(" ".join(get_args(kind))) > WIDE:
        bounds = {"metavar": "<name>"}
    default = None if knob.knob.open else knob.field.default
    option = typer.Option(*knob.knob.names, help=knob.knob.help, **bounds)
    return inspect.Parameter(
        knob.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, option],
    )


_FLAGS = [knob for knob in knobs(RunSpec) if knob.knob.help]


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
