"""The stacks by name: what is started for each, and why it may not run here."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from launch.children import search_path
from ringside_core.readings.machine import gpu_names
from ringside_core.specs import (
    BackendOptions,
    RefusalError,
    backend_options,
    parse_option,
    unknown_name,
)


@dataclass(frozen=True)
class Stack:
    """One way to add up arrays over processes: they call the library.

    Attributes:
        backend: of the spec that places and starts the processes, with its options.
        needs_nccl: its processes refuse to run without NCCL, which needs NVIDIA GPUs.
    """

    library: Literal["mpi4py", "horovod", "tensorflow"]
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs_nccl: bool = False


STACKS: Mapping[str, Stack] = {
    # The backend serves only to plan ranks under mpirun; no TensorFlow is imported.
    "mpi": Stack("mpi4py", "horovod", {"controller": "mpi"}),
    "horovod mpi": Stack("horovod", "horovod", {"controller": "mpi"}),
    "horovod gloo": Stack("horovod", "horovod", {"controller": "gloo"}),
    "horovod nccl": Stack("horovod", "horovod", needs_nccl=True),
    **{
        f"tf.distribute {name}": Stack(
            "tensorflow", "multi_worker_mirrored", {"implementation": name}, name == "NCCL"
        )
        for name in ("RING", "AUTO", "NCCL")
    },
}


def parse_stacks(text: str) -> tuple[str, ...]:
    """Names with commas between, each with settings after colons; `all`: every one, without any."""
    if text.strip() == "all":
        return tuple(STACKS)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise RefusalError("--stacks must name at least one.", received=repr(text))
    for name in names:
        options_of(name)
    return names


def stack_of(name: str) -> Stack:
    """The stack that a name means; settings may follow it: `horovod mpi:btl_tcp_flags=9`."""
    known = name.partition(":")[0]
    if known not in STACKS:
        raise unknown_name("stack", known, STACKS)
    return STACKS[known]


def options_of(name: str) -> BackendOptions:
    """The options of the stack's backend: those that make it the stack, and its settings."""
    stack = stack_of(name)
    settings = dict(parse_option(pair) for pair in name.split(":")[1:])
    if clash := sorted(set(settings) & set(stack.options)):
        raise RefusalError(
            "A setting of a stack must leave it the stack that it is.",
            received=name,
            advice=f"{clash[0]} is chosen by the name: {', '.join(STACKS)}.",
        )
    return backend_options(stack.backend, {**stack.options, **settings})


def obstacle(name: str) -> str:
    """Why a stack cannot run here, as far as that shows without starting it; else empty."""
    stack = stack_of(name)
    mpirun = shutil.which("mpirun", path=search_path(os.environ))
    if stack.options.get("controller") == "mpi" and not mpirun:
        return "mpirun is not installed"
    if find_spec(stack.library) is None:
        return f"{'Horovod' if stack.library == 'horovod' else stack.library} is not installed"
    if stack.needs_nccl and not gpu_names():
        return "NCCL needs NVIDIA GPUs: nvidia-smi names none"
    return ""
