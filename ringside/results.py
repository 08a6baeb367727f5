"""Commands and their results in Python: `ringside.compare`, `ringside.verify`, `ringside.load`.

A command runs in a process of its own, as it is typed; its output is printed as it comes.
"""

import html
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.report.sections.headline import headline_of
from ringside.report.source import read_comparison
from ringside.stats.figure import Interval
from ringside.stats.summary import Summary, summarize
from ringside_core.specs import Certificate, Comparison, RefusalError
from ringside_core.text import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

GOOD = (0, 1)  # 1: a run failed, or an arm is not certified; the results say which
COLORS = {"FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
REPEATED = {"option", "workload_option"}
# Figures of an arm: as a column is called, and as `ringside.stats.run_figures` does.
COLUMNS = {
    "step_ms": "step_time_ms",
    "start_s": "startup_s",
    "target_s": "time_to_target_s",
    "quality": "final_quality",
    "memory_bytes": "peak_pss_bytes",
}


@dataclass(frozen=True, repr=False)
class Result:
    """A comparison.

    Attributes:
        folder: with its report and results.json.
        comparison: every record of it.
    """

    folder: Path
    comparison: Comparison

    def __repr__(self) -> str:
        return f"<{self.folder}: {self.headline}>"

    @cached_property
    def summary(self) -> Summary:
        """What is computed from the records."""
        return summarize(self.comparison)

    @property
    def headline(self) -> str:
        """Which family is faster, by how much, and how sure that is."""
        return headline_of(self.comparison, self.summary).line

    @property
    def arms(self) -> "DataFrame":
        """A row for each arm: examples/s with its 95 % interval, and medians of other figures.

        What was not measured, or has no interval, is NaN.
        """
        rows = []
        for row in self.summary.arms:
            rate = row.mean_throughput
            low, high = _ends(rate.interval)
            rows.append(
                {
                    "arm": row.arm.label,
                    "replicas": row.arm.replicas,
                    "examples_s": rate.value,
                    "low": low,
                    "high": high,
                    "launches": rate.n,
                    "certified": row.certificate is not None and row.certificate.passed,
                    "not_comparable_because": row.not_comparable_because,
                    **{name: row.spreads[figure].value for name, figure in COLUMNS.items()},
                }
            )
        return _table(rows, "arm")

    @property
    def pairs(self) -> "DataFrame":
        """A row for each two arms: how many times as fast the first is, the interval, the word."""
        rows = []
        for pair in self.summary.pairs:
            low, high = _ends(pair.ratio.interval)
            rows.append(
                {
                    "first": pair.first,
                    "second": pair.second,
                    "ratio": pair.ratio.value,
                    "low": low,
                    "high": high,
                    "word": pair.word or pair.ratio.reason,
                }
            )
        return _table(rows)

    @property
    def runs(self) -> "DataFrame":
        """A row for each run; launch 0 is the screening."""
        rows = [
            {
                "arm": one.arm.label,
                "launch": one.run.round,
                "outcome": one.run.outcome.kind,
                "examples_s": one.figures["throughput_examples_s"].value,
                "used": one.used,
            }
            for one in self.summary.runs
        ]
        return _table(rows)

    def figure(self) -> "Figure":
        """Examples/s of each arm with its 95 % interval, and a dot for each launch that counts."""
        from matplotlib.figure import Figure

        arms, runs = self.arms.iloc[::-1], self.runs
        drawn = Figure(figsize=(7, 1 + 0.4 * len(arms)), layout="constrained")
        axes = drawn.subplots()
        for height, (label, row) in enumerate(arms.iterrows()):
            own = runs[(runs.arm == label) & runs.used].examples_s
            axes.plot(own, [height] * len(own), "o", color="0.6", markersize=4)
            axes.plot([row.low, row.high], [height] * 2, color="C0", linewidth=3)
            axes.plot(row.examples_s, height, "|", color="C0", markersize=16)
        why_not = arms.not_comparable_because.map(lambda why: why and " (not comparable)")
        axes.set_yticks(range(len(arms)), [str(label) for label in arms.index + why_not])
        axes.set_xlabel("examples/s")
        return drawn

    def _repr_html_(self) -> str:
        table = self.arms.to_html(float_format=lambda value: f"{value:,.4g}", na_rep="–")
        page = html.escape(str(self.folder / "report.html"))
        return f"<p><b>{html.escape(self.headline)}</b></p>{table}<p>report: {page}</p>"


@dataclass(frozen=True, repr=False)
class Certificates:
    """Certificates of several arms.

    Attributes:
        folder: where they are.
        certificates: one for each arm.
    """

    folder: Path
    certificates: tuple[Certificate, ...]

    def __repr__(self) -> str:
        passed = sum(one.passed for one in self.certificates)
        return f"<{self.folder}: {passed} of {plural(len(self.certificates), 'arm')} certified>"

    @property
    def passed(self) -> bool:
        """Whether all arms compute what plain Keras computes."""
        return bool(self.certificates) and all(one.passed for one in self.certificates)

    @property
    def arms(self) -> "DataFrame":
        """A row for each arm: whether it passed, its kind, and how many updates were compared."""
        rows = [
            {"arm": one.arm.label, "passed": one.passed, "kind": one.kind, "updates": one.steps}
            for one in self.certificates
        ]
        return _table(rows, "arm")

    def _repr_html_(self) -> str:
        table: str = self.arms.to_html()
        return table


def load(folder: str | Path) -> Result:
    """The comparison in a folder.

    Raises:
        RefusalError: there is none, or its file is damaged.

    Example:
        >>> ringside.load("runs/bout").headline  # doctest: +SKIP
    """
    return Result(Path(folder), read_comparison(Path(folder)))


def compare(*words: str, **flags: Any) -> Result:
    """`ringside compare`, as it is typed.

    Args:
        words: a script and its arguments.
        flags: `global_batch=64` is --global-batch 64; `replicas=[1, 2]` is --replicas 1,2; True is
            a flag alone, False its --no- form.

    Raises:
        RefusalError: what the command refuses; its message.

    Example:
        >>> ringside.compare("my_script.py", backends=["mirrored", "horovod"])  # doctest: +SKIP
    """
    folder, last = _run("compare", words, flags)
    result = load(folder)
    if not result.comparison.ended_because:
        raise _not_ended("compare", last)
    return result


def verify(*words: str, **flags: Any) -> Certificates:
    """`ringside verify`, as it is typed; arguments and errors are those of `compare`.

    Example:
        >>> ringside.verify("my_script.py", replicas=2).passed  # doctest: +SKIP
    """
    folder, last = _run("verify", words, flags)
    if not last.startswith("It took "):
        raise _not_ended("verify", last)
    found = sorted((folder / "certificates").glob("*.json"))
    texts = [(one, one.read_text(encoding="utf-8")) for one in found]
    return Certificates(
        folder, tuple(Certificate.from_json(text, origin=str(one)) for one, text in texts)
    )


def _run(command: str, words: Iterable[str], flags: Mapping[str, Any]) -> tuple[Path, str]:
    """Run a command to its end; the folder of its results, and its last line."""
    name = f"{command}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    named = flags if "resume" in flags else {"name": name, "output": "runs", **flags}
    # -P: what lies in the folder is not imported. Flags first: behind -- all belongs to a script.
    program = [sys.executable, "-P", "-m", "ringside.cli.main"]
    typed, said = [*program, command, *_typed(named), *words], [""]
    # A notebook asks for colours, with which a command would draw what it redraws on a terminal.
    plain = {name: value for name, value in os.environ.items() if name not in COLORS}
    with subprocess.Popen(
        typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=plain,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                said.append(line.strip() or said[-1])
        except BaseException:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate()  # until it has ended what it started
            raise
    if process.returncode not in GOOD:
        raise _not_ended(command, said[-1])
    if "resume" in flags:
        return Path(flags["resume"]), said[-1]
    return Path(named["output"]) / str(named["name"]), said[-1]


def _not_ended(command: str, last: str) -> RefusalError:
    return RefusalError(
        f"`ringside {command}` must end with its results.",
        received=last.removeprefix("ringside: "),
    )


def _typed(flags: Mapping[str, Any]) -> Iterator[str]:
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value is True or value is False:
            yield f"--{'' if value else 'no-'}{flag}"
        elif value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            for each in values if name in REPEATED else [",".join(map(str, values))]:
                yield from (f"--{flag}", str(each))


def _ends(interval: Interval | None) -> tuple[float, float]:
    return (math.nan, math.nan) if interval is None else (interval.low, interval.high)


def _table(rows: list[dict[str, Any]], index: str = "") -> "DataFrame":
    from pandas import DataFrame

    made = DataFrame(rows)
    return made.set_index(index) if index else made
