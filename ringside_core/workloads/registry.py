"""Find a workload: one of Ringside's by name, or a user's by file or module. No TensorFlow here.

A user's workload is a function, `file.py:function` or `module:function`, or a whole script with its
own arguments: `file.py --its flags`.
"""

import importlib
import importlib.util
import inspect
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ringside_core.die_with_parent import answer_of
from ringside_core.specs import RefusalError, unknown_name
from ringside_core.specs.keras_version import KerasVersion, environment_of, version_of
from ringside_core.specs.run_spec import Option
from ringside_core.users_errors import of_users

if TYPE_CHECKING:
    from ringside_core.workloads.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
# Ringside's own packages. Python knows one module of each name, so a user's cannot have these.
ROOFS = ("backends", "launch", "ringside", "ringside_core", "trainers")


class Ready(NamedTuple):
    """A workload of Ringside's own.

    Attributes:
        function: `module:function`, imported on use.
        global_batch, epochs: the defaults. 48 and 96 can be divided by 1, 2, 3, 4, 6 and 8.
        certified_updates: that a certificate compares by default. In float64 an update takes about
            four times as long as the timed one, so a workload of long updates has fewer.
    """

    function: str
    global_batch: int
    epochs: int
    certified_updates: int = 20


WORKLOADS: Mapping[str, Ready] = {
    "digits-large": Ready("ringside_core.workloads.digits:digits_large", 96, 10, 8),
    "digits": Ready("ringside_core.workloads.digits:digits", 48, 10),
    "mnist": Ready("ringside_core.workloads.public:mnist", 240, 5),
    "tf_flowers": Ready("ringside_core.workloads.public:tf_flowers", 48, 20),
    "synthetic": Ready("ringside_core.workloads.synthetic:synthetic", 48, 3),
}
DEFAULT = "digits-large"  # of every command: what is certified, compared and trained is the same
OWN = Ready("", 48, 3)
# Of a program: what its fit asks for; how long each part of its data takes; how fast they are read.
Question = Literal["fit", "stages", "speed"]
SCRIPT_LIMIT_S = 600.0  # for a script to reach its fit


def ready(name: str, options: Mapping[str, Option], data_dir: str | None = None) -> Ready:
    """The workload of this name, with its defaults; a user's own program is asked for its own.

    Args:
        name: of the workload.
        options: of the workload.
        data_dir: where data sets are kept.

    Raises:
        RefusalError: there is none; or a program that does not reach its fit.
    """
    check_name(name)
    if name in WORKLOADS:
        return WORKLOADS[name]
    answer = fit_asked(name, options, data_dir)
    return Ready(name, answer["global_batch"], answer["epochs"])


def certified_updates(name: str) -> int:
    """Updates that a certificate of this workload compares by default."""
    return WORKLOADS.get(name, OWN).certified_updates


def script_words(name: str) -> list[str]:
    """A script and its arguments, of a workload that is one: `file.py --its flags`; else empty."""
    try:
        words = shlex.split(name)
    except ValueError:
        return []
    return words if words and words[0].endswith(".py") else []


def fit_number(name: str, options: Mapping[str, Option]) -> int:
    """Which `ringside.fit` of a program is meant, from 1; a function has one.

    Raises:
        RefusalError: a script has no other options, and no such fit.
    """
    if not script_words(name):
        return 1
    number = options.get("fit", 1)
    if options.keys() - {"fit"} or type(number) is not int or number < 1:
        raise RefusalError(
            "A script has one option of Ringside's, fit: which of its fits is meant, from 1.",
            received=", ".join(f"-w {name}={value}" for name, value in options.items()),
            advice="Write its own flags behind the script: my_script.py -- --its-flag 3",
        )
    return number


def must_train_all_fits(name: str, options: Mapping[str, Option]) -> None:
    """Refuse to run a whole script as one of its fits.

    Raises:
        RefusalError: there are options.
    """
    if options and script_words(name):
        raise RefusalError(
            "A run trains all fits of a script.",
            received=", ".join(f"-w {name}={value}" for name, value in options.items()),
            advice="Leave it out; verify, compare and check take -w fit=2.",
        )


def own_file(name: str) -> str | None:
    """The Python file of a user's workload; None: it is a module's, or one of Ringside's."""
    file = script_words(name)[:1] or [name.rpartition(":")[0]]
    return file[0] if file[0].endswith(".py") else None


def keras_of(name: str) -> KerasVersion | None:
    """The Keras that the file of a user's workload asks for; None: it is one of Ringside's.

    Raises:
        RefusalError: it asks for both.
    """
    if name in WORKLOADS:
        return None
    file = own_file(name)
    if file is not None:
        return version_of(Path(file))
    parts = name.rpartition(":")[0].split(".")
    if not all(parts):  # to import it says why that is no module
        return 2
    module = Path(*parts)
    for folder in (Path.cwd(), *map(Path, sys.path)):
        for place in (folder / module.with_suffix(".py"), folder / module / "__init__.py"):
            if place.is_file():
                return version_of(place)
    return 2


def is_own(name: str) -> bool:
    """Whether a workload is a user's."""
    return name not in WORKLOADS


def check_name(name: str) -> None:
    """Refuse what is no known name, no script, and neither file.py:function nor module:function."""
    words = script_words(name)
    if words and not Path(words[0]).is_file():
        raise RefusalError("The script must exist.", received=words[0])
    if words:
        check_folder(Path(words[0]).resolve().parent)
    elif ":" not in name and name not in WORKLOADS:
        known = [*WORKLOADS, "path/to/file.py:function", "path/to/script.py"]
        raise unknown_name("workload", name, known)
    elif name not in WORKLOADS:
        location, _, function = name.rpartition(":")
        if not (location and function) or "\0" in name:
            raise RefusalError(
                "A workload is named file.py:function or package.module:function.",
                received=repr(name),
            )
        if (folder := _folder_of(location)) is not None:
            check_folder(folder)


def fit_asked(
    name: str,
    options: Mapping[str, Option],
    data_dir: str | None = None,
    *,
    about: Question = "fit",
) -> Mapping[str, Any]:
    """What a program asks of a fit, as `ringside.probe` answers; each question is asked once.

    A process of its own runs the program up to there.

    Args:
        name: of the program.
        options: of the program.
        data_dir: where data sets are kept.
        about: what is asked.

    Raises:
        RefusalError: the program does not get there, or there is no such fit.
    """
    request = {"workload": name, "fit": fit_number(name, options), "options": dict(options)}
    return _answer(name, json.dumps({**request, "data_dir": data_dir, "about": about}))


@cache
def _answer(name: str, request: str) -> Mapping[str, Any]:
    try:
        environment = environment_of(keras_of(name) or 2)
        answer, errors = answer_of(
            "ringside.probe", request, limit_s=SCRIPT_LIMIT_S, environment=environment
        )
    except subprocess.TimeoutExpired:
        raise RefusalError(
            "A program must reach its fit.",
            received=f"nothing from {name} within {SCRIPT_LIMIT_S:.0f} s",
        ) from None
    if answer is None:
        raise RefusalError("A program must run up to its fit.", received=errors)
    if "refused" in answer:
        raise RefusalError(answer["refused"])
    return answer


def check_folder(folder: Path) -> None:
    """Refuse a folder on Python's search path that holds a module or package named like a roof.

    A folder of that name counts if Python files are in it: they could be imported from there.

    Raises:
        RefusalError: there is one, outside of Ringside's own folder.
    """
    if folder.resolve() == ROOT:
        return
    for roof in ROOFS:
        files = [folder / f"{roof}.py", *sorted((folder / roof).glob("*.py"))]
        for file in filter(Path.is_file, files):
            raise RefusalError(
                f"No module of yours may be called {', '.join(ROOFS[:-1])} or {ROOFS[-1]}: "
                "Ringside's own packages have these names.",
                received=str(file),
                advice="Rename it. If its folder is on PYTHONPATH, taking it off helps too.",
            )


def load_function(reference: str, *, made: type | None = None) -> Callable[..., Any]:
    """Import a workload: `path/to/file.py:function` or `package.module:function`.

    Args:
        reference: to the function, which `check_name` has let pass.
        made: what the function returns; an object of this type may stand in its place.

    Raises:
        RefusalError: no such file, module or function; or an error inside the imported code, with
            the file and line where it happened.
    """
    location, _, name = reference.rpartition(":")
    try:
        module = (_import_file if location.endswith(".py") else _import_module)(location)
    except RefusalError:
        raise
    except Exception as error:
        raise RefusalError(
            "The workload must import without an error.", received=of_users(error)
        ) from error
    function = getattr(module, name, None)
    if made is not None and isinstance(function, made):
        return lambda: function
    if not callable(function):
        known = [n for n, v in vars(module).items() if inspect.isfunction(v)]
        raise unknown_name(f"function in {location}", name, known)
    return function


def load_workload(
    name: str,
    *,
    options: Mapping[str, Option],
    data_dir: str | None,
    global_batch: int | None = None,
) -> "Workload":
    """Build a workload.

    Args:
        name: one of WORKLOADS, or a user's `file.py:function` or `module:function`; a
            Workload may be given instead of the function.
        options: keyword arguments of its function.
        data_dir: where data sets are kept; passed to the function if it has such a parameter.
        global_batch: of the run; likewise. None: the function's own.

    Raises:
        RefusalError: unknown name or option, a function that returns no workload, missing data.
    """
    # By name, because it imports TensorFlow; code that only plans imports this module too.
    kind = importlib.import_module("ringside_core.workloads.workload").Workload
    known = WORKLOADS.get(name)
    function = load_function(known.function if known else name, made=kind)
    parameters = inspect.signature(function).parameters
    for option in options:
        if option not in parameters:
            raise unknown_name(f"option of the workload {name}", option, parameters)
    arguments: dict[str, Any] = dict(options)
    if "data_dir" in parameters:
        arguments["data_dir"] = data_dir
    if "global_batch" in parameters and global_batch is not None:
        arguments.setdefault("global_batch", global_batch)
    workload = function(**arguments)
    if not isinstance(workload, kind):
        raise RefusalError(
            f"The function {name} must return a ringside.Workload.",
            received=type(workload).__name__,
            advice="examples/own_model.py shows one in 30 lines.",
        )
    return cast("Workload", workload)


def _folder_of(location: str) -> Path | None:
    """The folder in which a user's file or module finds its neighbours; None: it is Ringside's."""
    if location.endswith(".py"):
        return Path(location).resolve().parent
    return None if location.partition(".")[0] in ROOFS else Path.cwd()


def search_first(folder: Path | None) -> None:
    """Let Python look for modules in a user's folder first, and in Ringside's own folder last.

    `python train.py` puts Ringside's folder first, whose `tests` and `examples` would hide modules
    of the user's that are installed or on PYTHONPATH.
    """
    if folder is None:
        return
    check_folder(folder)
    for roof in ROOFS:  # while they are found: another copy of Ringside may be installed
        importlib.import_module(roof)
    others = [p for p in sys.path if Path(p).resolve() not in (folder, ROOT)]
    sys.path[:] = [str(folder), *others, str(ROOT)]


def _import_file(location: str) -> Any:
    path = Path(location).resolve()
    if not path.is_file():
        raise RefusalError("The workload's file must exist.", received=location)
    name = f"ringside_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    search_first(_folder_of(location))
    spec.loader.exec_module(module)
    return module


def _import_module(location: str) -> Any:
    search_first(_folder_of(location))
    try:
        return importlib.import_module(location)
    except ModuleNotFoundError as error:
        if error.name and f"{location}.".startswith(f"{error.name}."):
            raise RefusalError(
                "The workload's module must be importable.",
                received=f"no module {error.name!r}",
                advice="Start from the folder that holds it, or name the file: path/file.py:name.",
            ) from None
        raise
