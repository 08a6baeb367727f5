"""What the machine did to the runs, beside their own cores and with them."""

from collections.abc import Iterator

from ringside.stats.rounds import DISTURBED_SHARE, beside
from ringside_core.specs import Comparison
from ringside_core.text import percent, plural

Advised = tuple[str, str]  # what a reader must know, and what to do about it


def about_machine(comparison: Comparison) -> Iterator[Advised]:
    """Reasons to be careful, each with its advice."""
    yield from _beside(comparison)


def beside_line(comparison: Comparison) -> str:
    """How much others used of all cores, at most; empty: nobody counted, or the runs had all."""
    shares = [share for run in comparison.runs if (share := beside(run)) is not None]
    if not shares:
        return ""
    middle = sorted(shares)[len(shares) // 2]
    return f"others used {percent(middle)} in the median run, {percent(max(shares))} at most"


def _beside(comparison: Comparison) -> Iterator[Advised]:
    """Others on cores that the run did not use; no round is left out for that."""
    found = [run for run in comparison.runs if (beside(run) or 0.0) > DISTURBED_SHARE]
    if found:
        worst = max(found, key=lambda run: beside(run) or 0.0)
        cores = worst.load.machine_cores if worst.load else 0
        yield (
            f"In {plural(len(found), 'run')} others used more than {percent(DISTURBED_SHARE)} of "
            f"all cores of the machine, at most {percent(beside(worst) or 0.0)} of {cores} "
            f"({worst.arm}). Memory, caches and the clock rate are shared, and no round was left "
            "out for that.",
            "Measure while nobody else uses the machine.",
        )
