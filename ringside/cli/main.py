"""`ringside`: find the named command and run it.

Only the named command's module is imported, so `ringside --help` answers at once.
"""

import contextlib
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from ringside.cli.stopping import Stopped, ending_on_signals

ROOT = Path(__file__).resolve().parents[2]
BY_SIGNAL = tuple(128 + one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
STOPPED = "stopped; every process that it started has been ended"
# Each is a module beside this one.
COMMANDS = {
    "compare": "Train the same model under every backend; table and report.",
    "check": "Say what will be done with a program, and train nothing.",
    "verify": "Prove that every backend computes the same; certificates.",
    "input": "Say whether training waits for its data, and what would help.",
    "trace": "Show what each process does within a step, as a picture and for Perfetto.",
    "drill": "Make faults in a run of each backend; what each loses.",
    "launch": "Start one run under one backend: plan, processes, outcome.",
    "kubernetes": "Print one run's manifests for Kubernetes.",
    "allreduce": "Time the all-reduce of every stack.",
    "predict": "Predict step times at sizes that you cannot run.",
    "lab": "Make hosts on this machine: up, status, rate, cut, mend.",
    "doctor": "Show which backends can run here, and why others cannot.",
    "report": "Write a report again, or set two comparisons side by side.",
    "verify-report": "Render a report again from its raw samples, and compare.",
}
# Of a command with many options, those that most need; the help shows the others behind them.
COMMON = {
    *("backends", "replicas", "budget", "workload", "global_batch", "epochs", "seed", "hostfile"),
    *("backend", "option", "faults", "why", "tuned", "all_arms", "verify", "resume", "restarts"),
    *("changes", "dry_run"),
}
MANY = 15
TYPED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")  # of bash; of zsh and fish


class Command(TyperCommand):
    """A command whose help has its common options first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, common options, and more options, each under its heading."""
        titles: dict[str, list[tuple[str, str]]] = {}
        params = self.get_params(ctx)
        for param in params:
            common = param.name in {*COMMON, "help"} or len(params) <= MANY
            title = "Options" if common else "More options"
            title = "Arguments" if param.param_type_name == "argument" else title
            if record := param.get_help_record(ctx):
                titles.setdefault(title, []).append(record)
        for title in ("Arguments", "Options", "More options"):
            if title in titles:
                with formatter.section(title):
                    formatter.write_dl(titles[title])


def build_app(arguments: list[str]) -> typer.Typer:
    """The application: the named command is loaded, the others have only a help line."""
    app = typer.Typer(
        name="ringside",
        help="Horovod and tf.distribute, side by side: same model, same data, measured.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    # A shell that completes a line hands it over in the environment.
    typed = [*arguments, *(os.environ.get(name, "") for name in TYPED)]
    named = {word for text in typed for word in text.split()}
    for name, summary in COMMANDS.items():
        if name not in named:
            app.command(name, help=summary)(_not_loaded)
            continue
        _check_search_path()
        from ringside_core.text import print_anything  # only now is it known to be Ringside's own

        print_anything()
        command = importlib.import_module(f"ringside.cli.{name.replace('-', '_')}").command
        if isinstance(command, typer.Typer):  # of several commands
            app.add_typer(command, name=name)
        else:
            # Each paragraph on one line: typer would keep line breaks.
            paragraphs = (command.__doc__ or summary).split("\n\n")
            helped = "\n\n".join(" ".join(part.split()) for part in paragraphs)
            app.command(name, help=helped, cls=Command)(command)
    return app


def _check_search_path() -> None:
    """Refuse modules on PYTHONPATH that would be imported instead of Ringside's own."""
    sys.path.insert(0, str(ROOT))  # the check itself must not be of such a module
    try:
        import ringside_core  # noqa: F401
    finally:
        sys.path.remove(str(ROOT))
    from ringside_core.workloads.registry import check_folder  # slow: pydantic

    for folder in map(Path, sys.path):
        if folder.resolve() == ROOT:
            return
        check_folder(folder)


def _not_loaded() -> None:
    raise AssertionError("a command that was not named was called")


def main() -> None:
    """Entry point; exits with 0, 1 (a run failed), 2 (refused) or 128 + a signal."""
    raise SystemExit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run with these arguments; returns the exit code."""
    try:
        with ending_on_signals():
            app = build_app(arguments)
            raise SystemExit(app(args=arguments, prog_name="ringside", standalone_mode=False))
    except typer.TyperException as error:
        from ringside_core.wrong_flags import about_flag

        if said := about_flag(error, " ".join(["ringside", *arguments[:1]])):
            _say(said)
        return 2
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
        if code in BY_SIGNAL and not isinstance(done, Stopped):
            _say(STOPPED)
        return code
    except KeyboardInterrupt:
        _say(STOPPED)
        return 130
    except OSError as error:  # of the machine; a traceback explains nothing
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 2
    except Exception as error:
        from ringside_core.specs.errors import RefusalError  # --help need not import the nouns

        if not isinstance(error, RefusalError):
            raise
        _say(str(error))
        return 2


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"ringside: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
