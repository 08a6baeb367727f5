"""Each program of the catalogue under every stack against plain Keras.

One start of a stack trains all its programs, one after the other (run.py). A program that hangs or
ends its process fails, and those behind it are started again.
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from launch.site import free_ports
from tests.nightly import daily
from tests.programs.compare import deviations, load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUN = HERE / "run.py"
CATALOGUE = HERE / "catalogue"
BIN = Path(sys.executable).parent
# Rounding of sums that are taken in another order; programs train 10 to 20 updates in float64.
TOLERANCE = 1e-10
MOST_STARTS = 4
MOST_S = 900
pytestmark = pytest.mark.timeout(MOST_S * 2)


@dataclass(frozen=True)
class Program:
    """What a program declares.

    Attributes:
        kind: equal to plain Keras; coupled: to that of the same slices alone; refused.
        sentence: words that a refusal holds.
        keras3: also, or only, runs under Keras 3.
        gradients: where they must be added to be equal.
    """

    name: str
    kind: str
    sentence: str = ""
    keras3: bool | str = False
    gradients: str = "optimizer"


def declared(file: Path) -> Program:
    """What a program says of itself, in one line; it is not run."""
    line = re.search(r"^(KIND.*) = (.*)$", file.read_text(), re.MULTILINE)
    assert line, f"{file.name} does not say its KIND"
    names, values = line[1].lower().split(", "), ast.literal_eval(line[2])
    says = dict(zip(names, values if len(names) > 1 else [values], strict=True))
    return Program(file.stem, **says)


PROGRAMS = [declared(file) for file in sorted(CATALOGUE.glob("*.py"))]


@dataclass(frozen=True)
class Start:
    """One process of a stack: its command, and what is added to its environment."""

    command: list[str]
    env: dict[str, str]


def by_python(words: list[str]) -> list[Start]:
    """One process, also of several mirrored replicas."""
    return [Start([sys.executable, *words], {})]


def by_horovodrun(words: list[str]) -> list[Start]:
    """Two ranks."""
    horovodrun = [str(BIN / "horovodrun"), "-np", "2", "--gloo", "--disable-cache"]
    return [Start([*horovodrun, sys.executable, *words], {})]


def by_tf_config(words: list[str]) -> list[Start]:
    """Two workers on this machine."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    return [
        Start(
            [sys.executable, *words],
            {
                "TF_CONFIG": json.dumps(
                    {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
                )
            },
        )
        for index in range(2)
    ]


@dataclass(frozen=True)
class Arm:
    """A stack, and who takes part in it.

    Attributes:
        trial: tiled: each row of a batch stands as often as there are replicas; passes: each
            replica runs its rows in two passes.
        only: names of programs; (): all of its Keras.
    """

    name: str
    start: Callable[[list[str]], list[Start]]
    processes: int = 1
    replicas: int = 2
    keras: int = 2
    trial: str = ""
    only: tuple[str, ...] = ()

    def __str__(self) -> str:
        trial = f"-{self.trial}" if self.trial else ""
        return f"{self.name}{trial}{'-few' * bool(self.only)}-keras{self.keras}"

    @property
    def programs(self) -> list[Program]:
        """Those of its Keras."""
        found = [p for p in PROGRAMS if (p.keras3 if self.keras == 3 else p.keras3 != "only")]
        return [p for p in found if not self.only or p.name in self.only]


# What two processes can do otherwise than two replicas of one: hang, read or draw for themselves.
PROCESSES = (
    "accumulated_in_the_step",
    "batch_norm",
    "batches_of_one_row",
    "callbacks_see_own_rows",
    "counted_in_a_branch",
    "draws_of_rows",
    "endless_mix_never_ends",
    "evaluated_before_fit",
    "generator_read_ahead",
    "gradients_without_tape",
    "losses_of_a_whole_batch",
    "masks_of_replicas",
    "maximum_added_up",
    "optimizers_of_the_authors",
    "queue_of_gathered_rows",
    "queue_of_own_rows",
    "ragged_and_sparse_rows",
    "results_of_the_authors",
    "several_fits",
    "sharpness_of_own_rows",
    "short_batch_as_full",
    "statistics_without_rows",
    "step_with_a_tape",
    "unseeded_shuffle",
)
BY_NIGHT = tuple(p.name for p in PROGRAMS if p.name not in PROCESSES)
HOROVOD = Arm("horovod:2", by_horovodrun, processes=2)
HOROVOD_BY_NIGHT = replace(HOROVOD, only=BY_NIGHT)
ARMS = [
    Arm("serial:1", by_python, replicas=1),
    Arm("mirrored:2", by_python),
    Arm("mirrored:3", by_python, replicas=3),
    HOROVOD_BY_NIGHT,
    Arm("multi_worker_mirrored:2", by_tf_config, processes=2),
    Arm("serial:1", by_python, replicas=1, keras=3),
    Arm("mirrored:2", by_python, keras=3),
    replace(HOROVOD, keras=3),
]
# One stack shows what the others show of a program; the others show themselves.
EACH_TIME = [arm for arm in ARMS if arm.name == "mirrored:2" and arm.keras == 2]
TILED = (
    "batch_norm",
    "draws_of_rows",
    "maximum_added_up",
    "queue_of_gathered_rows",
    "sum_over_rows",
    "vector_loss_in_inner_tape",
)
PASSES = (
    "callbacks_see_own_rows",
    "draws_of_rows",
    "losses_beside_the_loss",
    "ragged_and_sparse_rows",
    "loss_scale_of_keras3",
    "targets_cut_along_time",
    "vae_of_means",
    "weights_normalized_per_replica",
)
CENTRAL = ("batch_norm", "evaluated_before_fit", "maximum_added_up")
FEW = [
    replace(HOROVOD, only=PROCESSES),
    replace(HOROVOD, keras=3, only=("equal_gradients",)),
    Arm("central_storage:2", by_python, only=CENTRAL),
    Arm("mirrored:2", by_python, trial="tiled", only=TILED),
    Arm("mirrored:2", by_python, trial="passes", only=PASSES[:4]),
]
TRIED = [replace(arm, only=()) for arm in ARMS if arm.name in ("mirrored:2", "horovod:2")]
ARMS += [replace(arm, trial="tiled") for arm in TRIED]
ARMS += [replace(arm, trial="passes", only=PASSES) for arm in TRIED[1:]] + FEW
ARMS.append(replace(FEW[2], keras=3))
EACH_TIME += FEW
ASKED = [
    pytest.param(
        arm,
        program,
        id=f"{arm}-{program.name}",
        marks=[] if arm in EACH_TIME else [pytest.mark.nightly],
    )
    for arm in ARMS
    for program in arm.programs
]


def run(starts: list[Start], folder: Path, arm: Arm, first_path: Path) -> str:
    """Run processes in a folder, to their end; returns what they have printed."""
    files = [folder / f"start-{len([*folder.glob('start-*')])}-{k}.log" for k in range(len(starts))]
    children: list[subprocess.Popen] = []
    for start, file in zip(starts, files, strict=True):
        path = os.pathsep.join([str(first_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
        env = {"PYTHONPATH": path, "TF_USE_LEGACY_KERAS": str(int(arm.keras == 2)), "ARM": arm.name}
        env |= {"TILED": str(int(arm.trial == "tiled")), "PASSES": str(1 + (arm.trial == "passes"))}
        with file.open("w") as log:
            children.append(
                subprocess.Popen(
                    start.command,
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **env, **start.env},
                    cwd=folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        for child in children:
            child.wait(MOST_S)
    finally:
        for child in children:
            child.kill()
            child.wait()
    return "\n".join(file.read_text(errors="replace") for file in files)


def train_all(arm: Arm, folder: Path, first_path: Path) -> str:
    """Let a stack train all its programs; returns what its processes have printed."""
    left = [program.name for program in arm.programs]
    printed = ""
    for _ in range(MOST_STARTS):
        starts = arm.start([str(RUN), str(folder), *left])
        printed += run(starts, folder, arm, first_path)
        done = {file.name.partition(".")[0] for file in folder.glob("*.0.npz")}
        # What is missing first has ended the process, or was ended for it.
        missing = [name for name in left if name not in done]
        left = missing[1:]
        if not left:
            break
    return printed


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, quick_horovodrun: None
) -> Iterator[Callable[[Arm], tuple[Path, str]]]:
    """The folder of an arm's results and what its processes printed; started when first asked."""

    @cache
    def of(arm: Arm) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp(str(arm).replace(":", "-"))
        first_path = HERE / ("plain" if arm.name == "plain" else "by_rows")
        return folder, train_all(arm, folder, first_path)

    yield of


@pytest.mark.parametrize(
    "program",
    daily(
        [p for p in PROGRAMS if p.keras3 != "only" and p.kind != "refused"],
        lambda program: program.name in PROCESSES,
    ),
    ids=lambda p: p.name,
)
def test_two_stacks_train_the_same_rows(
    program: Program, trained: Callable[[Arm], tuple[Path, str]]
) -> None:
    """Every process has the same ledger, and what couples the rows of a slice ends equal."""
    here = [arm for arm in (*EACH_TIME, HOROVOD_BY_NIGHT) if not arm.trial]
    arms = [arm for arm in here if program in arm.programs]
    folders = [trained(arm)[0] for arm in arms]
    files = [file for folder in folders for file in folder.glob(f"{program.name}.*.npz")]

    ledgers = {file.with_suffix(".ledger").read_text() for file in files}

    assert len(files) == sum(arm.processes for arm in arms)
    if program.name != "compiled_by_xla":  # the hash is no operation of XLA
        assert json.loads(min(ledgers))[0] > 0
    assert len(ledgers) == 1
    if program.kind == "coupled":
        apart = [deviations(load(files[0]), load(file)) for file in files[1:]]
        assert max(worst for each in apart for worst in each.values()) <= TOLERANCE, apart


def plain(keras: int) -> Arm:
    """The same programs, by plain Keras."""
    return Arm("plain", by_python, replicas=1, keras=keras)


@pytest.mark.parametrize(("arm", "program"), ASKED)
def test_program(arm: Arm, program: Program, trained: Callable[[Arm], tuple[Path, str]]) -> None:
    """It tells what plain Keras tells in every process, or is refused by the sentence."""
    divided = arm.replicas > 1 and arm.trial != "tiled"
    if program.name == "sum_over_rows" and divided:
        pytest.skip("a sum: ringside verify says so (tests/mistakes/test_mistakes.py)")
    folder, printed = trained(arm)
    reference = load(trained(plain(arm.keras))[0] / f"{program.name}.0.npz")
    files = [folder / f"{program.name}.{rank}.npz" for rank in range(arm.processes)]
    assert all(file.is_file() for file in files), f"no result\n{printed[-4000:]}"

    for file in files:
        found = load(file)
        if program.kind == "refused" and (divided or "error" in found):
            kind, message = found["error"]
            assert kind == "RefusalError"
            assert program.sentence in message
            continue
        assert "error" not in found, "\n".join(map(str, found["error"]))
        if program.kind == "coupled" and divided:
            assert found.keys() == reference.keys()
            apart = deviations(load(files[0]), found)  # processes end equal
        else:
            apart = deviations(reference, found)
        assert max(apart.values()) <= TOLERANCE, apart
