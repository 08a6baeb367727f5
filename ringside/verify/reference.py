"""The serial run with which arms are compared: its cases, and whether it is one."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from launch.interrupts import Interrupts
from ringside.verify.cases import (
    ROUNDED,
    SINGLE,
    WATCHED,
    as_replicas,
    reference_cases,
    reference_seeds,
    reference_spec,
)
from ringside.verify.checks import reference_is_plain_keras
from ringside.verify.processes import Start, Watched, run_request, side_by_side
from ringside.verify.request import (
    CASES,
    INSPECTION,
    PLAIN,
    Case,
    Request,
    case_folder,
    states_folder,
)
from ringside.verify.trace import Trace
from ringside_core.specs import ByDesign, Check, RunSpec

_NOTHING_INSPECTED: dict[str, Any] = {
    "by_design": [],
    "obstacles": [],
    "true_examples": False,
    "not_in_float64": "",
    "data_digest": "",
    "on_gpus": False,
}


@dataclass(frozen=True)
class Reference:
    """What the serial run did of its cases.

    Attributes:
        asked: the request of each of its processes. The first one also inspects the workload; the
            second trains from several seeds, if an arm needs that.
        watched: what each of them did.
    """

    asked: Sequence[Request]
    watched: Sequence[Watched]

    @cached_property
    def inspection(self) -> Mapping[str, Any]:
        """What of the workload cannot be compared without care, and the digest of its data."""
        path = self._folder / INSPECTION
        if not path.exists():
            return _NOTHING_INSPECTED
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @property
    def by_design(self) -> tuple[ByDesign, ...]:
        """Layers that depend on the split of a batch, or on a random stream."""
        return tuple(ByDesign(**one) for one in self.inspection["by_design"])

    @property
    def not_in_float64(self) -> str:
        """Why it cannot run in float64, and all cases are run in float32; empty: it can."""
        return str(self.inspection["not_in_float64"])

    def obstacle(self, *, exact: bool) -> str:
        """Why an arm cannot be compared with it; empty: it can.

        Args:
            exact: whether the updates of the arm have one right result; if so, it needs no seeds.
        """
        if self.inspection["obstacles"]:
            return "; ".join(self.inspection["obstacles"])
        needed = [*zip(self.asked, self.watched, strict=True)][: 1 if exact else None]
        for request, watched in needed:
            if missing := _missing(request, watched):
                return f"there is no serial reference{missing}"
        return "" if self.plain.passed else f"{self.plain.name}: {self.plain.finding}"

    @cached_property
    def plain(self) -> Check:
        """Whether plain Keras does the same."""
        seen = self.traces(1)
        plain = Trace.read(case_folder(self._folder, WATCHED) / PLAIN)
        twin = self.rounded(WATCHED, 1)
        return reference_is_plain_keras(plain, seen[WATCHED], twin, self.precision)

    @property
    def precision(self) -> str:
        """In which all cases but single updates are run."""
        return "float32" if self.not_in_float64 else "float64"

    @property
    def amplifies(self) -> bool:
        """Whether rounding grows in float64, and is allowed for."""
        return self.precision == "float64" and self.rounded(WATCHED, 1) is not None

    def rounded(self, case: str, replicas: int) -> Trace | None:
        """Its trace of a case with other rounding; None: it does not matter in this workload."""
        return self.traces(replicas).get(f"{case}{ROUNDED}")

    def traces(self, replicas: int) -> dict[str, Trace]:
        """Its trace of each case, for an arm of this size."""
        found = {name: seen for one in self.watched for name, seen in one.traces.items()}
        suffix = self._suffix(replicas)
        return {
            name: trace
            for name, seen in found.items()
            for trace in found.get(name + suffix, seen).values()
        }

    def states(self, replicas: int) -> Path:
        """Folder with its states before each single update, for an arm of this size."""
        return states_folder(self._folder, SINGLE + self._suffix(replicas))

    def remove_states(self) -> None:
        """They are large, and not needed when all arms are judged."""
        shutil.rmtree(self._folder / CASES, ignore_errors=True)

    def _suffix(self, replicas: int) -> str:
        """Suffix of its cases that split a batch as this size does, if that matters."""
        return as_replicas(replicas) if any(one.split for one in self.by_design) else ""

    @property
    def _folder(self) -> Path:
        return self.watched[0].folder


def run_reference(
    spec: RunSpec,
    sizes: Sequence[int],
    *,
    workers: Sequence[int],
    steps: int,
    folder: Path,
    start: Start,
) -> Reference:
    """Run all cases of the serial run; those of several seeds beside the others.

    Args:
        spec: of one of the arms.
        sizes: numbers of replicas of the arms, above 1.
        workers: sizes of the arms whose training has no single right result.
        steps: updates of the longest case.
        folder: of all certificates.
        start: where the processes are started, and by which launcher.
    """
    serial, place = reference_spec(spec), folder / "reference"
    cases = reference_cases(serial, sizes, run_dir=place, steps=steps)
    asked = {
        place: Request(cases=cases, inspect=tuple(sizes) or (2,), precision=serial.precision),
    }
    if workers:
        asked[folder / "reference-seeds"] = Request(cases=reference_seeds(serial, workers))

    def run(place: Path, interrupts: Interrupts) -> Watched:
        return run_request(asked[place], serial, place, interrupts, start)

    return Reference([*asked.values()], [*side_by_side([partial(run, place) for place in asked])])


def _missing(request: Request, watched: Watched) -> str:
    """What a process did not do of its request; empty: nothing."""
    if watched.obstacle:
        return f": {watched.obstacle}"
    for case in request.cases:
        if case.updates_per_batch > 1:
            continue  # only asynchronous arms are compared with it, see `convergence`
        for trace in watched.traces[case.name].values():
            missing = trace.error or unseen(case, trace)
            if missing:
                return f" ({case.name}): {missing}"
    return ""


def unseen(case: Case, trace: Trace) -> str:
    """What the trace of a completed case lacks, if it was not watched as planned; else empty."""
    made = sum(trace.meta["updates"])
    fewer = case.keep_states or case.states  # of large models
    if not made or (made < (case.steps or 1) and not fewer):
        return f"it made {made} updates, and not {case.steps}"
    watched = {
        "steps": trace.steps == made,
        "last": trace.final,
        "ends": "initial_loss" in trace.meta,
    }
    if not watched[case.watch]:
        return "it was not watched"
    return ""
