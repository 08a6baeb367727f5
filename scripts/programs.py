"""Certify every program of examples/ and write docs/programs.md: a row for each of its fits.

    python scripts/programs.py

`ringside verify` certifies each one under the serial backend, and with two replicas under mirrored,
multi_worker_mirrored and horovod: about a minute each on two quiet cores. Certificates are kept in
runs/programs/NAME. A program is certified again if anything has changed since: it, Ringside's code,
the machine or its packages. The page is written at the end; Ctrl-C leaves the old one, and keeps
the certificates that are whole.
"""

import ast
import io
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ringside.certificates.store import changed_since  # noqa: E402
from ringside.cli.stopping import ending_on_signals  # noqa: E402
from ringside.report.sections.proof import checks_of, deviation_cell  # noqa: E402
from ringside_core.specs import Certificate, write_whole  # noqa: E402

KEPT = ROOT / "runs" / "programs"
PAGE = ROOT / "docs" / "programs.md"
BACKENDS = ("serial", "mirrored", "multi_worker_mirrored", "horovod")
STEPS = 8  # updates that are compared, as of the default workload; they hold two ends of an epoch
HEADINGS = (
    *("program", "what it shows", "for Ringside"),
    *BACKENDS,
    *("float64", "differs by design"),
)


@dataclass(frozen=True)
class Program:
    """One fit of a file of examples/."""

    path: Path
    fit: int = 1

    @property
    def name(self) -> str:
        """Of its certificates."""
        return self.path.stem if self.fit == 1 else f"{self.path.stem}-fit-{self.fit}"

    @property
    def words(self) -> list[str]:
        """What `ringside verify` is given."""
        later = [] if self.fit == 1 else ["-w", f"fit={self.fit}"]
        name = str(self.path.relative_to(ROOT))
        return ["--workload", f"{name}:workload" if self.is_function else name, *later]

    @property
    def is_function(self) -> bool:
        """Whether it has a function `workload`."""
        body = ast.parse(self.path.read_text(encoding="utf-8")).body
        return any(isinstance(node, ast.FunctionDef) and node.name == "workload" for node in body)

    @property
    def description(self) -> str:
        """What it shows, or which of its fits this is."""
        if self.fit > 1:
            return f"its fit {self.fit} (`-w fit={self.fit}`)"
        text = ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""
        # Without the address of the command.
        return text.split("\n")[0].rstrip(".").split(": `")[0]

    @property
    def interface(self) -> str:
        """`function`, or how many lines name Ringside."""
        if self.is_function:
            return "function"
        tokens = tokenize.generate_tokens(io.StringIO(self.path.read_text("utf-8")).readline)
        lines = {token.start[0] for token in tokens if token[:2] == (tokenize.NAME, "ringside")}
        return f"{len(lines)} lines"


def programs() -> list[Program]:
    """Each fit of all files of examples/, by name."""
    paths = sorted((ROOT / "examples").glob("*.py"))
    return [Program(path, fit) for path in paths for fit in range(1, max(1, _fits(path)) + 1)]


def _fits(path: Path) -> int:
    """How often a script calls `ringside.fit`."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return sum(ast.unparse(call.func) == "ringside.fit" for call in calls)


def read_certificates(program: Program) -> dict[str, Certificate]:
    """The certificates of a program that lie in its folder, by backend."""
    files = sorted((KEPT / program.name / "certificates").glob("*.json"))
    read = [Certificate.from_json(file.read_text("utf-8"), origin=str(file)) for file in files]
    return {certificate.arm.backend: certificate for certificate in read}


def are_current(program: Program, certificates: Mapping[str, Certificate]) -> bool:
    """Whether there is one for each backend, and nothing has changed since."""
    # A certificate that was refused does not say of which files it is.
    of_file = all(str(program.path) in c.sources for c in certificates.values())
    complete = set(certificates) == set(BACKENDS)
    return of_file and complete and not changed_since(list(certificates.values()), "")


def certify(program: Program) -> dict[str, Certificate]:
    """Make the certificates of a program; by backend."""
    shutil.rmtree(KEPT / program.name, ignore_errors=True)
    command = [sys.executable, "-m", "ringside.cli.main", "verify", *program.words]
    command += ["--backends", ",".join(BACKENDS), "--replicas", "2", "--steps", str(STEPS)]
    subprocess.run([*command, "--output", str(KEPT), "--name", program.name], cwd=ROOT, check=False)
    certificates = read_certificates(program)
    if missing := set(BACKENDS) - set(certificates):
        sys.exit(f"{program.name}: no certificate of {', '.join(sorted(missing))}")
    return certificates


def row(program: Program, certificates: Mapping[str, Certificate]) -> tuple[str, ...]:
    """The cells under HEADINGS."""
    ordered = [certificates[name] for name in BACKENDS]
    answers = (c.kind if c.passed else f"refused: {c.reason}" for c in ordered)
    float64 = deviation_cell([check for c in ordered for check in checks_of(c, "float64")])
    by_design = {(layer.layer, layer.differs): None for c in ordered for layer in c.by_design}
    return (
        f"[{program.path.stem}](../{program.path.relative_to(ROOT)})",
        program.description,
        program.interface,
        *answers,
        float64.main,
        "; ".join(f"{layer}: {differs}" for layer, differs in by_design) or "–",
    )


def page(rows: Sequence[Sequence[str]], packages: Mapping[str, str]) -> str:
    """The whole page."""
    versions = f"TensorFlow {packages['tensorflow']} and Horovod {packages['horovod']}"
    cells = [[cell.replace("|", "\\|") for cell in row_cells] for row_cells in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (HEADINGS, *cells))
    head, *body = table.split("\n")
    return f"""# Which programs were certified?

`python scripts/programs.py` wrote this page, with {versions}. It certifies
each program of [examples/](../examples/) with `ringside verify --steps {STEPS}`: serially, and with
two replicas under each of the others. [verify.md](verify.md) says what a certificate proves.

- **for Ringside**: how many lines of a script name Ringside; or a function that returns a
  `Workload`.
- **float64**: the largest deviation from the serial run in {STEPS} updates, over all backends.
- **differs by design**: the certificate allows for it.
- A script with several fits has a row for each. The fits before train nothing there.

{head}
|{"---|" * len(HEADINGS)}
{chr(10).join(body)}
"""


def main() -> None:
    """Certify what is not certified yet, and write the page."""
    certificates = {}
    for program in programs():
        print(*program.words[1:], flush=True)
        kept = read_certificates(program)
        certificates[program] = kept if are_current(program, kept) else certify(program)
    machine = next(iter(certificates.values()))["serial"].machine
    rows = [row(program, by_backend) for program, by_backend in certificates.items()]
    write_whole(PAGE, page(rows, machine.packages))
    print(PAGE)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(
            f"programs.py takes no arguments. Received: {' '.join(sys.argv[1:])}.", file=sys.stderr
        )
        sys.exit(2)
    try:
        with ending_on_signals():
            main()
    except KeyboardInterrupt:
        sys.exit(130)
