"""--resume: everything from the folder, on the same machine with the same code, or not at all."""

from pathlib import Path
from typing import Any

import pytest

import ringside.cli.main
from ringside.certificates import store
from ringside.cli.common import only_one
from ringside.comparison.choose import circumstances
from ringside.comparison.experiment import RESULTS, keep, run_launches
from ringside.comparison.resume import reopened
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import Asked, Comparison, Division, RefusalError, RunSpec
from tests.unit.compare.made import SHARED, UNSEEN, Made, comparison_of

ASKED = Asked(budget_s=900.0)


def left_behind(folder: Path, **changes: Any) -> Path:
    """A folder of a comparison that was interrupted here and now."""
    fields: dict[str, Any] = {
        "machine": machine_facts(),
        "code_version": store.code_version(),
        "asked": ASKED,
        "verify": True,
    }
    keep(comparison_of("mirrored").replace(**{**fields, **changes}), folder)
    return folder


def test_it_goes_on_as_asked_for_before(tmp_path: Path) -> None:
    """A budget that is given is for what comes; of an interruption there was no look."""
    left_behind(tmp_path, spent_s=100.0)

    same = reopened(tmp_path, budget=None)
    more = reopened(tmp_path, budget="1h")

    assert same.asked == ASKED
    assert more.asked == ASKED.replace(budget_s=3700.0)
    assert (same.looks, more.looks) == (1, 1)


def test_a_finished_one_says_so(tmp_path: Path) -> None:
    """Unless it gets a budget for more launches: then somebody has looked."""
    division = Division(
        screening_s=60, launches=3, phase_s=30, start_s=10, pass_s=2, scatter=0.05
    )  # fmt: skip
    left_behind(tmp_path, ended_because="The budget was over.", division=division)

    with pytest.raises(RefusalError, match=r"finished.*The budget was over.*--budget"):
        reopened(tmp_path, budget=None)
    again = reopened(tmp_path, budget="1h")

    assert (again.ended_because, again.looks) == ("", 2)
    assert again.division is not None and again.division.launches > 20


def test_a_budget_counts_where_launches_were_asked_for(tmp_path: Path) -> None:
    """A minute is no place for twenty more."""
    division = Division(
        screening_s=60, launches=20, phase_s=30, start_s=10, pass_s=2, scatter=0.05
    )  # fmt: skip
    left_behind(tmp_path, ended_because="All", division=division, asked=ASKED.replace(launches=20))

    assert reopened(tmp_path, budget="60s").asked.launches is None


def test_one_without_a_final_has_no_launches_to_add(tmp_path: Path) -> None:
    """Nor is that a look."""
    left_behind(tmp_path, ended_because="No two contenders are there.")

    with pytest.raises(RefusalError, match=r"with a final.*No two contenders are there"):
        reopened(tmp_path, budget="1h")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machine": machine_facts().replace(cpu_model="Abacus 1")}, ["cpu_model", "Abacus 1"]),
        (
            {"machine": machine_facts().replace(packages={"tensorflow": "1.15.0"})},
            ["packages.tensorflow must be", "and it was 1.15.0"],
        ),
        ({"code_version": "0123456789abcdef" * 4}, ["code", "0123456789ab"]),
    ],
)
def test_what_has_changed_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    """The message has both values."""
    left_behind(tmp_path, **changes)

    with pytest.raises(RefusalError) as refusal:
        reopened(tmp_path, budget=None)

    assert all(word in str(refusal.value) for word in words)


def with_runs(folder: Path) -> Comparison:
    """A verified comparison with three launches, made here and now, kept in a folder."""
    begun, machine, code = (
        comparison_of("mirrored", verified=True),
        machine_facts(),
        store.code_version(),
    )
    certificates = tuple(one.replace(code_version=code) for one in begun.certificates)
    ended = run_launches(
        begun.replace(code_version=code, certificates=certificates),
        folder=folder,
        executor=Made(),
        observer=UNSEEN,
    )
    runs = tuple(
        run.replace(records=tuple(one.replace(machine=machine) for one in run.records))
        for run in ended.runs
    )
    here = ended.replace(
        machine=machine,
        certificates=tuple(one.replace(machine=machine) for one in certificates),
        circumstances=circumstances(SHARED),
        ended_because="",
        runs=runs,
    )
    keep(here, folder)
    return here


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations of made-up runs are no use to anybody; our code may be edited meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version = store.code_version()  # of an edit while the tests run they say nothing
    monkeypatch.setattr(store, "code_now", lambda: version)


@pytest.mark.usefixtures("cache")
def test_runs_that_it_would_not_have_made_are_refused(tmp_path: Path) -> None:
    """Another seed, batch or arm is named with its place in the file and both values."""
    comparison = with_runs(tmp_path)
    assert reopened(tmp_path, budget=None) == comparison

    def with_spec(**changes: Any) -> None:
        first, *rest = comparison.runs
        spec: RunSpec = first.spec.replace(**changes)
        records = tuple(one.replace(spec=spec) for one in first.records)
        keep(comparison.replace(runs=(first.replace(spec=spec, records=records), *rest)), tmp_path)

    with_spec(seed=77)
    with pytest.raises(RefusalError, match=r"results\.json: runs\.0\.spec\.seed=77.*should be 1"):
        reopened(tmp_path, budget=None)
    with_spec(global_batch=12)
    with pytest.raises(RefusalError, match=r"runs\.0\.spec\.global_batch=12"):
        reopened(tmp_path, budget=None)


@pytest.mark.usefixtures("cache")
def test_runs_of_other_terms_are_refused(tmp_path: Path) -> None:
    """If no summary can be made of them, it does not go on; the message names the file."""
    comparison = with_runs(tmp_path)
    first, *rest = comparison.runs
    records = tuple(
        one.replace(machine=one.machine.replace(cpu_model="Abacus 1")) for one in first.records
    )
    keep(comparison.replace(runs=(first.replace(records=records), *rest)), tmp_path)

    with pytest.raises(RefusalError, match=r"results\.json.*Abacus 1"):
        reopened(tmp_path, budget=None)


@pytest.mark.usefixtures("cache")
def test_certificates_must_be_of_the_arms(tmp_path: Path) -> None:
    """Of the runs that the arms make, whatever the certificates say; and of arms that exist."""
    comparison = with_runs(tmp_path)
    first, *rest = comparison.certificates
    other = first.replace(spec=first.spec.replace(epochs=first.spec.epochs + 1))
    unknown = first.replace(arm=first.arm.replace(label="serial ×9"))

    swapped = rest[0].replace(arm=rest[0].arm.replace(label=first.arm.label))
    cases = (
        (other, "it is of the run"),
        (unknown, "there is no such arm"),
        (swapped, "serial ×1: it is of the run"),
    )
    for wrong, words in cases:
        keep(comparison.replace(certificates=(wrong, *rest)), tmp_path)
        with pytest.raises(RefusalError, match=words):
            reopened(tmp_path, budget=None)


def test_other_circumstances_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores, variables and the folder of relative files: both values are shown, but no secret."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_VAR_PASSWORD", "hunter2")
    shared = SHARED.replace(workload="mine.py:model")
    left_behind(tmp_path, shared=shared, circumstances=circumstances(shared))
    assert "hunter2" not in (tmp_path / RESULTS).read_text(encoding="utf-8")

    def refused() -> str:
        with pytest.raises(RefusalError) as refusal:
            reopened(tmp_path, budget=None)
        return str(refusal.value)

    reopened(tmp_path, budget=None)
    with monkeypatch.context() as changed:
        changed.setenv("OMP_NUM_THREADS", "1")
        assert "Received: OMP_NUM_THREADS is there, and was not." in refused()
    with monkeypatch.context() as changed:
        changed.delenv("TF_VAR_PASSWORD")
        assert "Received: TF_VAR_PASSWORD was there, and is not." in refused()
    with monkeypatch.context() as changed:
        changed.setenv("TF_VAR_PASSWORD", "hunter3")
        said = refused()
        assert "TF_VAR_PASSWORD with values of SHA-256" in said and "hunter" not in said
    with monkeypatch.context() as changed:
        changed.setattr("os.sched_getaffinity", lambda _: {5, 7})
        assert "Received: 5, 7, and it was" in refused()
    with monkeypatch.context() as changed:
        changed.chdir("/")
        assert f"Received: /, and it was {tmp_path}" in refused()


def test_two_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is refused and touches nothing that the first one wrote."""
    left_behind(tmp_path)
    before = (tmp_path / RESULTS).read_bytes()

    with only_one(tmp_path):
        code = ringside.cli.main.run(["compare", "--resume", str(tmp_path)])

    assert code == 2
    assert "Another ringside works in this folder." in capsys.readouterr().err
    assert (tmp_path / RESULTS).read_bytes() == before
    with only_one(tmp_path):
        """It is free again."""
