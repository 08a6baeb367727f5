"""What is wrong with a flag or an argument, in one line; typer would draw a box of several."""

from typing import Any


def about_flag(error: Any, command: str) -> str:
    """One sentence of what is wrong, what was received, and where to look.

    Args:
        error: a `typer.TyperException`, which typer raises where it is not standalone.
        command: what was typed before the flags; used where the error knows no better.

    Returns:
        Nothing if typer has printed the help already.
    """
    said = error.format_message().removesuffix(".")
    if not said:
        return ""
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):  # pydantic's, which knows what came
        said += f". Received: {cause.errors()[0]['input']}"
    context = getattr(error, "ctx", None)
    command = context.command_path if context else command
    stop = "" if said.endswith("?") else "."
    return f"{said}{stop} `{command} --help` lists what there is."
