"""How a benchmark is started from a shell."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from ringside_core.specs import RefusalError


def start(command: Callable[..., None]) -> None:
    """Run a command with the flags that this process was given, and exit.

    A refusal is printed as one line on standard error, with exit code 2, as `ringside` does.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    # Scripts that are killed leave files in their temporary folder.
    with TemporaryDirectory(prefix="rs-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        try:
            app()
        except RefusalError as error:
            print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
            sys.exit(2)
