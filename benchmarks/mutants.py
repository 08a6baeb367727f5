"""Plant small faults in the code that trains, one at a time, and see what catches them.

    python benchmarks/mutants.py                    # all of them; some 20 minutes on two cores
    python benchmarks/mutants.py --list
    python benchmarks/mutants.py float16-all-reduce resume-forgets-momentum
    python benchmarks/mutants.py --clean            # the same commands without a fault

A mutant is a file of mutants/: one fault as a patch, and above it what it does, which point it
belongs to, whether a certificate claims to see it, and the smallest command that should. Each is
applied to a copy of this checkout, and the command runs there, with the packages of this Python.

A mutant is caught if a check says no. One that ends in an error of its own is no fault but a broken
patch, and counts as neither. The exit code is 1 if a mutant inside the claim is missed, if one is
broken, if a patch does not apply, or if a run without a fault is failed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ringside.compare.experiment import RESULTS
from ringside.stats.summary import summarize
from ringside.verify.detect import GUARDS
from ringside_core.specs import Certificate, Comparison, RefusalError, unknown_name

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_suffix("")
LIMIT_S = 600
CLEAN_RUNS = 30
INSIDE = "inside"


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        what: it does, in one sentence.
        point: of docs/verify.md, "What was planted"; `-`: a fault that certificates always saw.
        claim: `inside`; or why no certificate says anything about it.
        command: of `ringside`, without where its results go.
    """

    name: str
    what: str
    point: str
    claim: str
    command: str
    patch: Path


@dataclass(frozen=True)
class Verdict:
    """What a command said.

    Attributes:
        word: caught, missed, or broken.
        by: the check and its sentence, or the error; empty if missed.
    """

    word: str
    by: str = ""


def all_mutants() -> dict[str, Mutant]:
    """Every mutant by its name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.patch"))}


def _read(path: Path) -> Mutant:
    head, _, _ = path.read_text(encoding="utf-8").partition("\n\n")
    what, *fields = head.splitlines()
    told = dict(field.split(": ", 1) for field in fields)
    return Mutant(path.stem, what, told["point"], told["claim"], told["run"], path)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of this checkout: what git tracks, and what is new, as it lies here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():  # git also lists what was removed
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield tree


def plant(mutant: Mutant, tree: Path) -> None:
    """Apply a mutant's patch to a tree.

    Raises:
        RefusalError: the code has changed, and the patch does not fit it any more.
    """
    obstacle = _applied(mutant, tree) or _no_python(mutant, tree)
    if obstacle:
        raise RefusalError(
            "A patch must apply to the code as it is.",
            received=f"{mutant.name}: {obstacle}",
            advice=f"Adapt {mutant.patch}.",
        )


def _applied(mutant: Mutant, tree: Path, *flags: str) -> str:
    """Apply a patch; what git says against it."""
    applied = subprocess.run(
        ["git", "apply", "-C1", *flags, mutant.patch.resolve()],
        cwd=tree,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},  # no repository there
        capture_output=True,
        text=True,
    )
    return applied.stderr.strip() if applied.returncode else ""


def _no_python(mutant: Mutant, tree: Path) -> str:
    """What Python says against the patched files: a patch can apply at a wrong place."""
    for name in re.findall(r"^\+\+\+ b/(.*\.py)$", mutant.patch.read_text("utf-8"), re.MULTILINE):
        try:
            compile((tree / name).read_text(encoding="utf-8"), name, "exec")
        except SyntaxError as error:
            return f"{name}, line {error.lineno}: {error.msg}"
    return ""


def run(command: str, tree: Path, cache: Path) -> Verdict:
    """Run a command of `ringside` in a tree, and read what it found.

    Args:
        command: `verify`, `launch` or `compare` with its flags.
        tree: copy of a checkout.
        cache: for data sets and certificates, in the place of the user's.
    """
    results = tree.parent / "results"
    words = shlex.split(command)
    where = f"--run-dir {results}"
    if words[0] != "launch":
        where = f"--output {results.parent} --name {results.name}"
    code, said = _ended([*words, *where.split()], tree, cache)
    found = _findings(words[0], results, said)
    if code == 2 and not found and words[0] == "compare":
        # Its records do not fit. A refusal of the flags would also show without a fault (--clean).
        return Verdict("caught", said[said.rfind("ringside: ") :].strip())
    if code not in (0, 1) or (code and not found):
        return Verdict("broken", said.strip()[-400:])
    if not found:
        return Verdict("missed")
    return Verdict("broken" if stray_error(found) else "caught", found)


def _ended(words: Sequence[str], tree: Path, cache: Path) -> tuple[int, str]:
    """The exit code of `ringside` in a tree, and what it printed."""
    path = os.environ.get("PYTHONPATH", "")
    binaries = Path(sys.executable).parent
    with (tree.parent / "output").open("w+", encoding="utf-8") as output:
        try:
            code = subprocess.run(
                [str(binaries / "ringside"), *words],
                cwd=tree,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{tree}{os.pathsep}{path}",
                    "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
                    "XDG_CACHE_HOME": str(cache),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
            ).returncode
        except subprocess.TimeoutExpired:
            code = 3
            output.write(f"it did not end within {LIMIT_S} s")
        output.seek(0)
        return code, output.read()


def _findings(command: str, results: Path, said: str) -> str:
    """The first thing that a command found wrong; empty: nothing."""
    if command == "launch":
        last = said.strip().splitlines()[-1:]
        lines = [line for line in said.splitlines() if line.startswith(("failed", "hung"))]
        return next(iter(lines), "" if "completed" in said else "".join(last))
    for path in sorted(results.glob("certificates/*.json")):
        certificate = Certificate.from_json(path.read_text(encoding="utf-8"), origin=path.name)
        if not certificate.passed:
            return certificate.reason
    if command == "compare":
        text = (results / RESULTS).read_text(encoding="utf-8")
        for row in summarize(Comparison.from_json(text, origin=RESULTS)).arms:
            if row.not_comparable_because and not row.arm.twin_of:
                return f"{row.arm.label} is not ranked: {row.not_comparable_because}"
    return ""


def stray_error(found: str) -> bool:
    """Whether processes ended by something that is none of Ringside's own checks."""
    named = re.findall(r"\b([A-Z]\w*(?:Error|Exception|Died|Lost))\b", found)
    return bool(named) and not any(name in (*GUARDS, "RefusalError") for name in named)


def try_out(mutant: Mutant | None, command: str, cache: Path) -> Verdict:
    """Plant a mutant, or nothing, in a copy of the checkout, and run a command there."""
    with copied() as tree:
        if mutant is not None:
            plant(mutant, tree)
        return run(command, tree, cache)


def chosen(names: Sequence[str]) -> list[Mutant]:
    """Mutants by name, all if none is named; each patch applies.

    Raises:
        RefusalError: an unknown name, or patches that do not apply; all of them are named.
    """
    known = all_mutants()
    if unknown := [name for name in names if name not in known]:
        raise unknown_name("mutant", unknown[0], known)
    mutants = [known[name] for name in names or known]
    obstacles = []
    with copied() as tree:
        for mutant in mutants:
            try:
                plant(mutant, tree)
            except RefusalError as error:
                obstacles.append(str(error))
            _applied(mutant, tree, "--reverse")
    if obstacles:
        raise RefusalError("Every patch must apply.", received="\n".join(["", *obstacles]))
    return mutants


def side_by_side(jobs: Sequence[Callable[[], Verdict]], at_once: int) -> Iterator[Verdict]:
    """The results of jobs in order, as they are known."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(lambda job: job(), jobs)


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Mutants; none: all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name them; run nothing.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help=f"Run the commands without a fault, {CLEAN_RUNS} times.")
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Commands that run side by side.")] = 2,
) -> None:
    """Plant faults and see what catches them."""
    mutants = chosen(names or [])
    if listed:
        for mutant in mutants:
            print(f"{mutant.name}\n    {mutant.what}\n    ringside {mutant.command}")
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        ok = (_clean if clean else _planted)(mutants, Path(folder), at_once)
    print(f"{time.monotonic() - began:.0f} s")
    raise typer.Exit(0 if ok else 1)


def _planted(mutants: Sequence[Mutant], cache: Path, at_once: int) -> bool:
    """Print the table and its totals; whether all is as it should be."""
    jobs = [lambda one=one: try_out(one, one.command, cache) for one in mutants]
    print("| mutant | point | inside the claim | caught by |\n|---|---|---|---|", flush=True)
    found = []
    for mutant, verdict in zip(mutants, side_by_side(jobs, at_once), strict=True):
        found.append((mutant, verdict.word))
        inside = "yes" if mutant.claim == INSIDE else f"no: {mutant.claim}"
        said = " ".join(verdict.by.split()) if verdict.word == "caught" else f"**{verdict.word}**"
        print(f"| {mutant.name} | {mutant.point} | {inside} | {said} |", flush=True)
        if verdict.word == "broken":
            print(f"{mutant.name}: {verdict.by}", file=sys.stderr)
    claimed = [word for mutant, word in found if mutant.claim == INSIDE]
    beside = [word for mutant, word in found if mutant.claim != INSIDE]
    broken = [mutant.name for mutant, word in found if word == "broken"]
    print(
        f"\n{claimed.count('caught')} of {len(claimed)} inside the claim are caught, "
        f"{beside.count('caught')} of {len(beside)} beside it"
        + (f"; broken: {', '.join(broken)}" if broken else "")
    )
    return claimed.count("caught") == len(claimed) and not broken


def _clean(mutants: Sequence[Mutant], cache: Path, at_once: int) -> bool:
    """Run each command without a fault, from other seeds too until there are CLEAN_RUNS."""
    commands = sorted({mutant.command for mutant in mutants})
    seeded = [f"{one} --seed {seed}" for seed in range(1, CLEAN_RUNS + 1) for one in commands]
    seeded = seeded[: max(CLEAN_RUNS, len(commands))]
    jobs = [lambda one=one: try_out(None, one, cache) for one in seeded]
    alarms = 0
    for words, verdict in zip(seeded, side_by_side(jobs, at_once), strict=True):
        alarms += verdict.word != "missed"
        said = "passed" if verdict.word == "missed" else f"{verdict.word}: {verdict.by}"
        print(f"ringside {words}: {said}", flush=True)
    print(f"{alarms} false alarms in {len(seeded)} clean runs")
    return not alarms


if __name__ == "__main__":
    try:
        typer.run(command)
    except RefusalError as refusal:
        print(f"mutants.py: {refusal}", file=sys.stderr)
        sys.exit(2)
