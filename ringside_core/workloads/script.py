"""A user's script, run whole as Python would; `ringside/script.py` has what it calls."""

import sys
from pathlib import Path
from types import ModuleType

from ringside_core.keras import KERAS
from ringside_core.seeds import seed_script
from ringside_core.specs import RefusalError
from ringside_core.text import plural
from ringside_core.workloads.registry import script_words, search_first


class ScriptIsOver(BaseException):
    """Ends a script after what is asked of it; not an Exception, which scripts catch."""


def no_fit(script: str, fits: int = 0) -> RefusalError:
    """Of a script that ends, and has trained nothing, or has fewer fits than were asked for."""
    if fits:
        return RefusalError(
            "A script must have the fit that is asked for.",
            received=f"{script_words(script)[0]}, which ends after {plural(fits, 'fit')}",
            advice=f"Use -w fit={fits} or less.",
        )
    return RefusalError(
        "A script must call ringside.fit(model, …) instead of model.fit(…).",
        received=f"{script_words(script)[0]}, which ends without it",
        advice="For a loop with a tape, write the update as @ringside.step, and call "
        "ringside.fit(step, …). If the script does call it, a bare `except:` may have caught how "
        "Ringside ends it there.",
    )


def run(script: str) -> None:
    """Run a script to its end as the main module, with seeds, which it may set itself."""
    words = script_words(script)
    path = Path(words[0])
    code = compile(path.read_bytes(), str(path), "exec")
    seed_script()
    KERAS.begin_names()  # an author's own name may be a number that counting on would reach
    module = ModuleType("__main__")
    module.__file__ = str(path.resolve())
    sys.modules[f"ringside_user_{path.stem}"] = module  # certificates name the files they are of
    search_first(path.resolve().parent)
    main, arguments = sys.modules["__main__"], sys.argv
    sys.modules["__main__"], sys.argv = module, list(words)
    try:
        exec(code, vars(module))
    finally:
        sys.modules["__main__"], sys.argv = main, arguments
