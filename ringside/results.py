"""Commands and their results in Python: `ringside.compare`, `ringside.verify`, `ringside.load`.

A command runs in a process of its own, as it is typed; its output is printed as it comes.
"""

import html
import math
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

GOOD = (0, 1)  # 1: a run failed, or an arm is not certified; the results say which
# Figures of an arm: as a column is called, and as `ringside.stats.run_figures` does.
COLUMNS = {
    "step_ms": "step_time_ms",
    "start_s": "startup_s",
    "target_s": "time_to_target_s",
    "quality": "final_quality",
    "memory_bytes": "peak_pss_bytes",
}


@dataclass(frozen=True)
class Result:
    """A comparison.

    Attributes:
        folder: with its report and results.json.
        comparison: every record of it.
    """

    folder: Path
    comparison: Comparison

    @cached_property
    def summary(self) -> Summary:
        """What is computed from the records."""
        return summarize(self.comparison)

    @property
    def headline(self) -> str:
        """Which family is faster, by how much, and how sure that is."""
        found = headline_of(self.comparison, self.summary)
        return found.line if found else "No comparable arm has a throughput."

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
        axes.set_yticks(range(len(arms)), [str(label) for label in arms.index])
        axes.set_xlabel("examples/s")
        return drawn

    def _repr_html_(self) -> str:
        table = self.arms.to_html(float_format=lambda value: f"{value:,.4g}", na_rep="–")
        page = html.escape(str(self.folder / "report.html"))
        return f"<p><b>{html.escape(self.headline)}</b></p>{table}<p>report: {page}</p>"


@dataclass(frozen=True)
class Certificates:
    """Certificates of several arms.

    Attributes:
        folder: where they are.
        certificates: one for each arm.
    """

    folder: Path
    certificates: tuple[Certificate, ...]

    @property
    def passed(self) -> bool:
        """Whether all arms compute what plain Keras computes."""
        return all(one.passed for one in self.certificates)

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
    folder = _run("compare", words, flags)
    return load(folder)


def verify(*words: str, **flags: Any) -> Certificates:
    """`ringside verify`, as it is typed; arguments and errors are those of `compare`.

    Example:
        >>> ringside.verify("my_script.py", replicas=2).passed  # doctest: +SKIP
    """
    folder = _run("verify", words, flags)
    found = sorted((folder / "certificates").glob("*.json"))
    texts = [(one, one.read_text(encoding="utf-8")) for one in found]
    return Certificates(
        folder, tuple(Certificate.from_json(text, origin=str(one)) for one, text in texts)
    )


def _run(command: str, words: Iterable[str], flags: Mapping[str, Any]) -> Path:
    """Run a command to its end; the folder of its results."""
    named = {"name": f"{command}-{datetime.now():%Y%m%d-%H%M%S-%f}", "output": "runs", **flags}
    typed = [sys.executable, "-m", "ringside.cli.main", command, *words, *_typed(named)]
    said = [""]
    with subprocess.Popen(
        typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                said.append(line.strip() or said[-1])
        except BaseException:
            process.send_signal(signal.SIGINT)  # it ends what it has started
            raise
    if process.returncode not in GOOD:
        raise RefusalError(
            f"`ringside {command}` must end with its results.",
            received=said[-1].removeprefix("ringside: "),
        )
    return Path(named["output"]) / str(named["name"])


def _typed(flags: Mapping[str, Any]) -> Iterator[str]:
    """Flags as they are typed."""
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value is True or value is False:
            yield f"--{'' if value else 'no-'}{flag}"
        elif value is not None:
            several = isinstance(value, list | tuple)
            yield from (f"--{flag}", ",".join(map(str, value)) if several else str(value))


def _ends(interval: Interval | None) -> tuple[float, float]:
    return (math.nan, math.nan) if interval is None else (interval.low, interval.high)


def _table(rows: list[dict[str, Any]], index: str = "") -> "DataFrame":
    from pandas import DataFrame

    made = DataFrame(rows)
    return made.set_index(index) if index else made
