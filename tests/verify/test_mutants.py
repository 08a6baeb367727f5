"""Small faults, planted in copies of this checkout, are caught; benchmarks/mutants.py has more."""

import dataclasses
from pathlib import Path
from types import ModuleType

import pytest

from launch import Site
from ringside.verify.certify import certify
from tests.loading import loaded
from tests.verify.arms import subject

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).resolve().parents[2]
# Of several kinds, with commands that are quick: no launcher, few processes.
PLANTED = (
    "fault-in-train",
    "padding-evaluated-in-all-alike",
    "resume-forgets-momentum",
    "sum-for-mean-from-update-5",
)
# Planted in a model that cannot run in float64: nothing is hidden by what is let off.
IN_FLOAT32 = ("float16-all-reduce-of-a-strategy",)


@pytest.fixture(scope="module", name="mutants")
def mutants_() -> ModuleType:
    """The tool."""
    return loaded(ROOT / "benchmarks" / "mutants.py")


def test_every_patch_applies(mutants: ModuleType) -> None:
    """Else the fault is not planted, and nothing is known of it."""
    assert len(mutants.chosen([])) >= 45


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("name", "workload"),
    [(name, "") for name in PLANTED]
    + [(name, "benchmarks/mutant_workloads.py:only_in_float32") for name in IN_FLOAT32],
)
def test_a_fault_is_caught(
    name: str, workload: str, mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes run the copy with the fault; a check says no, and not an error of the patch."""
    mutant = mutants.all_mutants()[name]
    words = mutant.command.split()
    flags = dict(zip(words[1::2], words[2::2], strict=True))
    flags["--workload"] = workload or flags["--workload"]
    with mutants.copied() as tree:
        mutants.plant(mutant, tree)
        here = Site.here
        monkeypatch.setattr(Site, "here", lambda: dataclasses.replace(here(), root=str(tree)))
        arm = subject(
            flags["--backends"],
            int(flags["--replicas"]),
            workload=str(tree / flags["--workload"]),
        )

        (certificate,) = certify([arm], folder=tmp_path)

    assert not certificate.passed
    assert not mutants.stray_error(certificate.reason), certificate.reason
