"""`ringside doctor --matrix`: what works under which Keras and backend, each cell by a training.

Each row is one start of a backend's processes, which run one small program for each way. A cell
compares it with the serial run of the same program and the same Keras. No TensorFlow here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from launch.interrupts import Interrupts
from ringside.verify.processes import Watched, run_request, side_by_side
from ringside.verify.request import PLAIN, Case, Request, case_folder
from ringside.verify.trace import Trace
from ringside_core.specs import (
    REFERENCE,
    PipelineOptions,
    RefusalError,
    RunSpec,
    Topology,
    backend_options,
    capabilities_of,
)
from ringside_core.specs.keras_version import KerasVersion

BATCH = 8
EPOCHS = 4
TOLERANCE = 1e-10
# Sums of other parts are rounded otherwise in 16 bits; an overflow that is missed is far beyond it.
TOLERANCE_16 = 20 * 2**-11
PROGRAMS = "ringside.verify.matrix_workloads"
# Way → (program, who trains it; empty: who trains that Keras by default).
WAYS: Mapping[str, tuple[str, str]] = {
    "fit": ("plain", "fit"),
    "own step": ("own_step", ""),
    "loop": ("plain", "loop"),
    "resume": ("plain", ""),
    "clipping": ("clipped", ""),
    "callbacks": ("stopped", ""),
    "float16": ("half", ""),  # last: what hangs takes what follows with it
}
OF_LOOP = ("evaluate", "predict")  # what the way `loop` shows beside its weights


@dataclass(frozen=True)
class Row:
    """One start of a backend.

    Attributes:
        as_shipped: see RunSpec.
        against: Keras of the serial run that its cells are held against; None: its own.
        replicas: 2, but where there is one, or where several have no single right result.
    """

    keras: KerasVersion
    as_shipped: bool
    backend: str
    against: KerasVersion | None = None

    @property
    def replicas(self) -> int:
        """See above."""
        capabilities = capabilities_of(self.backend)
        return 1 if capabilities.always_one_replica or not capabilities.synchronous else 2

    @property
    def label(self) -> str:
        """How the row is called, and its folder."""
        shipped = "-as-shipped" if self.as_shipped else ""
        return f"keras-{self.keras}{shipped}-{self.backend}"


def rows(backends: Sequence[str]) -> list[Row]:
    """Both Keras under each backend, the serial one first, and Keras 3 as it is shipped."""
    others = [one for one in backends if one != REFERENCE]
    found = [
        Row(keras, as_shipped=False, backend=one)
        for keras in (2, 3)
        for one in (REFERENCE, *others)
    ]
    found.append(Row(3, as_shipped=False, backend=REFERENCE, against=2))
    shipped = [one for one in others if capabilities_of(one).family == "tf.distribute"]
    return [*found, *(Row(3, as_shipped=True, backend=one) for one in shipped)]


def tried(all_rows: Sequence[Row], folder: Path) -> dict[Row, dict[str, str]]:
    """The cells of each row: `right` with its deviation, `wrong by`, `refused`, `fails`, `hangs`.

    Args:
        all_rows: with the serial ones.
        folder: for what the processes write; new or empty.
    """
    starts = [row for row in all_rows if row.against is None]
    jobs = [partial(_watched, row, folder / row.label) for row in starts]
    watched = dict(zip(starts, side_by_side(jobs), strict=True))
    serial = {row.keras: watched[row] for row in starts if row.backend == REFERENCE}
    return {
        row: _cells(row, watched[row], serial[row.keras])
        if row.against is None
        else _across(serial[row.keras], serial[row.against])
        for row in all_rows
    }


def _across(serial: Watched, other: Watched) -> dict[str, str]:
    """The cells of a serial run that is held against the one under another Keras.

    Names of variables differ between them; the order of layers does not.
    """
    found = {}
    for way, (program, _) in WAYS.items():
        if program == "half":
            continue  # 16 bits: the kernels may round otherwise
        name = _folder(way)
        traces = [next(iter(one.traces[name].values()), Trace()) for one in (serial, other)]
        found[way] = next((f"fails: {one.error}" for one in traces if one.error), "") or _verdict(
            _off(*(_numbered(one.final) for one in traces)), TOLERANCE
        )
    for name, group in zip(OF_LOOP, ("evaluation", "predictions"), strict=True):
        values = [
            _numbered(_last(getattr(next(iter(one.traces["loop"].values())), group), group))
            for one in (serial, other)
        ]
        found[name] = _verdict(_off(*values), TOLERANCE)
    return found


def _numbered(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {str(number): value for number, value in enumerate(arrays.values())}


def _folder(way: str) -> str:
    return way.replace(" ", "-")


def _watched(row: Row, folder: Path, interrupts: Interrupts) -> Watched:
    cases = tuple(case for way in WAYS if isinstance(case := _case(row, way), Case))
    return run_request(Request(cases=cases), cases[0].spec, folder, interrupts)


def _case(row: Row, way: str) -> Case | RefusalError:
    """The training of a cell; an error: it is refused before anything starts."""
    try:
        return Case(
            name=_folder(way),
            spec=_spec(row, *WAYS[way]),
            steps=None,
            resumed=way == "resume",
            plain=row.backend == REFERENCE and way in _BY_PLAIN_KERAS,
        )
    except RefusalError as error:
        return error


def _spec(row: Row, program: str, trained_by: str) -> RunSpec:
    single = capabilities_of(row.backend).process_model == "single"
    default = "fit" if row.keras == 2 else "loop"
    return RunSpec(
        workload=f"{PROGRAMS}:{program}",
        backend=row.backend,
        options=backend_options(row.backend, {}),
        topology=Topology(replicas_per_process=row.replicas)
        if single
        else Topology(processes_per_host=row.replicas),
        global_batch=BATCH,
        epochs=EPOCHS,
        precision="float32" if program == "half" else "float64",
        pipeline=PipelineOptions(shuffle=False),
        save="all" if program == "stopped" else "record",
        ledger="full",
        trained_by=trained_by or default,
        keras=row.keras,
        as_shipped=row.as_shipped,
    )


# What plain Keras repeats for the serial run. Its other cells are references only.
_BY_PLAIN_KERAS = ("fit", "loop", "own step", "clipping")


def _cells(row: Row, watched: Watched, serial: Watched) -> dict[str, str]:
    found = {}
    for way in WAYS:
        case = _case(row, way)
        if isinstance(case, RefusalError):
            found[way] = f"refused: {case}"
            continue
        traces = watched.traces[case.name]
        reference, missing = _reference(row, way, case.name, serial)
        if told := _obstacle(traces, watched):
            found[way] = told
        elif missing:
            found[way] = missing
        else:
            found[way] = _told(way, traces, reference)
        if way == "loop" and not told:
            for name, group in zip(OF_LOOP, ("evaluation", "predictions"), strict=True):
                off = max(
                    _off(_last(getattr(one, group), group), _last(getattr(reference, group), group))
                    for one in traces.values()
                )
                found[name] = _verdict(off, TOLERANCE)
    return found


def _reference(row: Row, way: str, name: str, serial: Watched) -> tuple[Trace, str]:
    """What a cell is held against; and what to tell where there is nothing."""
    if row.backend == REFERENCE:
        if way not in _BY_PLAIN_KERAS:
            return Trace(), "the reference"
        plain = Trace.read(case_folder(serial.folder, name) / PLAIN)
        return plain, f"plain Keras fails: {plain.error}" if plain.error else ""
    if way == "resume":  # the run that nothing interrupts
        name = "fit" if row.keras == 2 else "loop"
    found = serial.traces[name]
    return next(iter(found.values())) if found else Trace(), "" if found else "no reference"


def _obstacle(traces: Mapping[str, Trace], watched: Watched) -> str:
    """Why a training was not over in all processes; empty: it was."""
    errors = [trace.error for trace in traces.values() if trace.error]
    if errors:
        kind, _, text = errors[0].partition(": ")
        return f"refused: {text}" if kind == "RefusalError" else f"fails: {errors[0]}"
    if len(traces) < len(watched.tasks):
        outcome = watched.execution.outcome
        return "hangs" if outcome.kind == "hung" else f"fails: its processes ended as {outcome}"
    return ""


def _told(way: str, traces: Mapping[str, Trace], reference: Trace) -> str:
    """How far the weights, and what the optimizer keeps, are from the reference's at the end."""
    narrow = WAYS[way][0] == "half"
    off = 0.0
    for trace in traces.values():
        off = max(off, _off(trace.final, reference.final))
        if reference.slots:
            slots = [_last(one.slots, "slots") for one in (trace, reference)]
            counts = [{n: v for n, v in one.items() if _counts(v)} for one in slots]
            off = max(off, _off(*counts))
        if way == "callbacks" and len(trace.metrics["loss"]) != len(reference.metrics["loss"]):
            return f"wrong: stops after {len(trace.metrics['loss'])} epochs"
    return _verdict(off, TOLERANCE_16 if narrow else TOLERANCE)


def _counts(value: NDArray[Any]) -> bool:
    """Whether a variable counts: updates made, or updates since the loss scale has changed."""
    return value.dtype.kind in "iu"


def _last(arrays: Mapping[str, NDArray[Any]], group: str) -> dict[str, NDArray[Any]]:
    """Of rows of arrays the last one; predictions have none."""
    whole = group == "predictions"
    return {name: value if whole else value[-1] for name, value in arrays.items()}


def _off(arm: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]]) -> float:
    """The largest difference, as a share of the largest reference; infinite: not comparable."""
    if arm.keys() != reference.keys():
        return np.inf
    largest = max((float(np.max(np.abs(v), initial=0.0)) for v in reference.values()), default=0.0)
    gaps = [
        float(np.max(np.abs(arm[name].astype(float) - value), initial=0.0))
        for name, value in reference.items()
    ]
    worst = float(np.max(gaps, initial=0.0))  # numpy's maximum keeps what is no number
    return worst / (largest or 1.0) if np.isfinite(worst) else np.inf


def _verdict(off: float, tolerance: float) -> str:
    if off == np.inf:
        return "wrong: no numbers, or others"
    return f"right {off:.0e}" if off <= tolerance else f"wrong by {off:.1e}"
