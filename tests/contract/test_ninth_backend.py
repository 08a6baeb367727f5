"""A new backend needs a class, a type of options and a row, and no change of any other code."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launch import Site, execute, make_plan
from ringside.cli import main
from ringside.comparison.arms import parse_arms
from ringside.comparison.tuning import candidates
from ringside_core.specs import BACKENDS, Execution, RefusalError, backend_options
from tests.contract import test_contract as contract
from tests.contract.cases import Case
from tests.contract.ninth import ROW, NinthOptions

ROOT = Path(__file__).resolve().parents[2]
NINTH = Case(ROW.name, 2, {"reduce_by": "HierarchicalCopyAllReduce"})
QUESTIONS = [
    question
    for name, question in vars(contract).items()
    if name.startswith("test_") and "case" in inspect.signature(question).parameters
]
# Stands in for a train.py of a checkout that has the ninth row.
PROGRAM = f"""import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
from ringside_core.specs import BACKENDS
from tests.contract.ninth import ROW
BACKENDS[ROW.name] = ROW
runpy.run_path({str(contract.HERE / "combining" / "train.py")!r}, run_name="__main__")
"""


@pytest.fixture(scope="module", autouse=True)
def _ninth_row() -> Iterator[None]:
    """The row is in the table while the tests of this file run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, ROW.name, ROW)
        yield


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """As in test_contract.py, in a process that has the row too."""
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "train.py").write_text(PROGRAM)

    @cache
    def run(case: Case, workload: str) -> tuple[Execution, Path]:
        run_dir = tmp_path_factory.mktemp("run")
        site = dataclasses.replace(Site.here(), root=str(checkout))
        plan = make_plan(case.spec(f"tests.contract.linear:{workload}"), run_dir=run_dir, site=site)
        return execute(plan, deadline_s=contract.DEADLINE_S), run_dir

    return run


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_the_contract_holds(question: Callable[..., None], start: Any) -> None:
    """Every question of the contract has the same answer as for the other backends."""
    question(start, NINTH)


def test_a_plan_starts_one_process_that_holds_all_replicas(tmp_path: Path) -> None:
    """The launcher follows from the capabilities."""
    plan = make_plan(NINTH.spec("digits"), run_dir=tmp_path)

    assert plan.expects == ("rank-0",)
    assert plan.spec.options == NinthOptions(reduce_by="HierarchicalCopyAllReduce")
    with pytest.raises(RefusalError, match=r"The backend ninth is started by local\."):
        make_plan(NINTH.spec("digits"), run_dir=tmp_path, launcher="mpirun")


def test_compare_has_its_arms(capsys: pytest.CaptureFixture[str]) -> None:
    """It is among those that a person means who names none, with its default arms."""
    assert main.run(["compare", "--dry-run", "--replicas", "2", "--global-batch", "32"]) == 0

    printed = capsys.readouterr().out.split("\n")
    assert "ninth ×2" in printed
    assert "ninth:reduce_by=HierarchicalCopyAllReduce ×2" in printed


def test_its_options_are_checked_and_tuned() -> None:
    """A wrong option is refused by name; a knob changes the right one."""
    with pytest.raises(RefusalError, match="option of ninth"):
        backend_options("ninth", {"reduce_with": "x"})
    arm = parse_arms("ninth", "2")[-1]

    assert ("reduce_by", "HierarchicalCopyAllReduce") in candidates(arm, gpus=False)
