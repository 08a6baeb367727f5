"""Files that were written before results.json: records of processes, loads, certificates.

As long as they are in the folder of a comparison, results.json must say the same.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ringside.report.differences import Difference
from ringside.report.source import RESULTS, read_text
from ringside_core.specs import (
    LOAD_FILE,
    Certificate,
    Comparison,
    Document,
    Load,
    RefusalError,
)
from ringside_core.specs.noun import differences

CERTIFICATES = "certificates"


@dataclass(frozen=True)
class Testimony:
    """The comparison of results.json with one kind of witness.

    Attributes:
        what: the kind.
        count: how many were compared.
        differences: where they and results.json differ.
        note: which of them are gone; empty: none.
    """

    what: str
    count: int
    differences: tuple[Difference, ...]
    note: str


def against_records(folder: Path, comparison: Comparison) -> Testimony:
    """Compare results.json with the record that each process wrote, if it is still there."""
    count, gone = 0, 0
    found: list[Difference] = []
    runs = [(f"runs.{index}", run) for index, run in enumerate(comparison.runs)]
    runs += [(f"trials.{index}.run", trial.run) for index, trial in enumerate(comparison.trials)]
    for place, run in runs:
        records = PurePosixPath(run.log_dir).parent / "records"
        if ".." in records.parts or not (folder / records).is_dir():
            gone += 1
            continue
        files = {file.stem: file for file in sorted((folder / records).glob("*.json"))}
        for index, record in enumerate(run.records):
            count += 1
            file = files.pop(record.task, None)
            where = f"{place}.records.{index}"
            if file is None:
                name = str(records / f"{record.task}.json")
                found.append(Difference(name, "the whole file", "nothing", f"{where} of {RESULTS}"))
            else:
                found += _against(folder, file, record, where)
        if run.outcome.completed:
            found += [_surplus(folder, file, "a record", place) for file in files.values()]
    note = ""
    if gone:
        note = (
            f"The records of {gone} of {len(runs)} runs are no longer in {folder}: "
            f"for these {RESULTS} is the only witness."
        )
    return Testimony("processes' own records", count, tuple(found), note)


def against_loads(folder: Path, comparison: Comparison) -> Testimony:
    """Compare what else the machines did with the files of the runs, and compute it again."""
    count, unknown = 0, 0
    found: list[Difference] = []
    for index, run in enumerate(comparison.runs):
        if run.load is None:
            continue
        if not run.load.machines:
            unknown += 1
            continue
        count += 1
        where = f"runs.{index}.load"
        found += _computed_again(run.load, where)
        place = PurePosixPath(run.log_dir).parent
        if ".." in place.parts or not (folder / place).is_dir():
            continue  # told by `against_records`
        file = folder / place / LOAD_FILE
        if file.exists():
            found += _against(folder, file, run.load, where)
        else:
            name = str(place / LOAD_FILE)
            found.append(Difference(name, "the whole file", "nothing", f"{where} of {RESULTS}"))
    note = ""
    if unknown:
        note = (
            f"What the load of {unknown} of {len(comparison.runs)} runs was computed from was not "
            "kept: an older version wrote them. Whether their rounds were disturbed is taken on "
            "trust."
        )
    return Testimony("loads of the machines", count, tuple(found), note)


def _computed_again(load: Load, where: str) -> Iterator[Difference]:
    """Busy time less the run's own, by each machine; and what the hypervisor took."""
    others = sum(max(one.busy_s, one.own_s) - one.own_s for one in load.machines)
    own: dict[str, float] = {
        "others_cpu_s": others,
        "steal_cpu_s": sum(one.steal_s for one in load.machines),
        "cores": sum(len(set(one.cores)) for one in load.machines),
    }
    for name, value in own.items():
        told = getattr(load, name)
        if not math.isclose(told, value, abs_tol=1e-9):
            expected = f"{value:g} (computed a second way)"
            yield Difference(RESULTS, f"{where}.{name}", f"{told:g}", expected)


def against_certificates(folder: Path, comparison: Comparison) -> Testimony:
    """Compare results.json with the certificates of the arms, as they were written at first."""
    what = "certificates"
    place = folder / CERTIFICATES
    if not place.is_dir():
        note = ""
        if comparison.certificates:
            note = f"The certificates are no longer in {folder}: {RESULTS} is their only witness."
        return Testimony(what, 0, (), note)
    files, found = _certificate_files(folder, place)
    count = 0
    labels = {one.arm.label for one in comparison.certificates}
    for index, certificate in enumerate(comparison.certificates):
        where, label = f"certificates.{index}", certificate.arm.label
        if label in files:
            count += 1
            found += _against(folder, files[label], certificate, where)
        else:
            expected = f"{where} of {RESULTS}, {label!r}"
            found.append(Difference(CERTIFICATES, "the whole file", "nothing", expected))
    if comparison.ended_because:  # before, a certificate may be written and not yet in results.json
        found += [
            _surplus(folder, file, f"a certificate of {label!r}", RESULTS)
            for label, file in files.items()
            if label not in labels
        ]
    return Testimony(what, count, tuple(found), "")


def _certificate_files(folder: Path, place: Path) -> tuple[dict[str, Path], list[Difference]]:
    """Files by the label of the arm; and as differences those that cannot be read or repeat one."""
    files: dict[str, Path] = {}
    found: list[Difference] = []
    for file in sorted(place.glob("*.json")):
        try:
            own = Certificate.from_json(read_text(file), origin=str(file.relative_to(folder)))
        except RefusalError as error:
            found.append(_unreadable(folder, file, error, "a certificate"))
            continue
        if own.arm.label in files:
            told = f"a second certificate of {own.arm.label!r}"
            found.append(_surplus(folder, file, told, RESULTS))
        files.setdefault(own.arm.label, file)
    return files, found


def _against(folder: Path, file: Path, told: Document, where: str) -> Iterator[Difference]:
    """Each field in which a file and results.json differ."""
    name = str(file.relative_to(folder))
    try:
        own = type(told).from_json(read_text(file), origin=name)
    except RefusalError as error:
        yield _unreadable(folder, file, error, f"{where} of {RESULTS}")
        return
    one, other = (document.model_dump(mode="json") for document in (own, told))
    for path, theirs, ours in differences(one, other):
        yield Difference(name, path, str(theirs), f"{ours} ({RESULTS}: {where}.{path})")


def _unreadable(folder: Path, file: Path, error: RefusalError, expected: str) -> Difference:
    return Difference(str(file.relative_to(folder)), "the whole file", str(error), expected)


def _surplus(folder: Path, file: Path, found: str, where: str) -> Difference:
    return Difference(str(file.relative_to(folder)), "the whole file", found, f"none in {where}")
