"""Measure whether an author's own input pipeline is as fast under Ringside as without it.

    python benchmarks/input.py
    python benchmarks/input.py --inputs tf.image,TFRecord --rounds 5

Each data set of benchmarks/programs.py is read by a model that costs next to nothing: by
`ringside.fit`, and by `Model.fit` of plain Keras or under Horovod, with one replica and with two
processes. It is measured as in benchmarks/tax.py.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.programs import INPUTS
from benchmarks.starting import start
from benchmarks.tax import Blocks, OrderSeed, Output, Rounds, Smoke, measure, specs_of
from ringside_core.specs import RunSpec

READERS = "serial,horovod"  # ×1 and ×2


def main(
    *,
    inputs: Annotated[str, typer.Option(help="Names with commas between.")] = ",".join(INPUTS),
    rounds: Rounds = 8,
    order_seed: OrderSeed = 1,
    output: Output = Path("runs"),
    smoke: Smoke = False,
) -> None:
    """Time inputs through Ringside against the same inputs in a script that is written by hand."""
    blocks = Blocks(1, 1) if smoke else Blocks()
    specs: dict[str, RunSpec] = {}
    for name in inputs.split(","):
        specs |= specs_of(name.strip(), READERS, "2", 2, blocks)
    measure(specs, blocks, 1 if smoke else rounds, order_seed, output, "input")


if __name__ == "__main__":
    start(main)
