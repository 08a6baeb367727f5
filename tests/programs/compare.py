"""How far two results of a program are apart."""

from pathlib import Path

import numpy as np

Result = dict[str, np.ndarray]


def load(file: Path) -> Result:
    """What run.py has kept of a program."""
    with np.load(file) as found:
        return dict(found)


def deviations(reference: Result, other: Result) -> dict[str, float]:
    """Of each kind, such as `weights`: the largest deviation ÷ the reference's largest value.

    What one of them lacks, or has in another shape, is infinitely far; so is an error.
    """
    found: dict[str, float] = {}
    kinds = dict.fromkeys(path.partition("/")[0] for path in [*reference, *other])
    for kind in kinds:
        paths = {p for p in [*reference, *other] if p.partition("/")[0] == kind}
        pairs = [(reference.get(path), other.get(path)) for path in paths]
        if kind == "error" or any(
            a is None
            or b is None
            or a.shape != b.shape
            or not np.isfinite([a.sum(), b.sum()]).all()
            for a, b in pairs
        ):
            found[kind] = float("inf")
            continue
        apart = max(np.max(np.abs(a - b), initial=0) for a, b in pairs if a is not None)
        most = max(np.max(np.abs(a), initial=0) for a, _ in pairs if a is not None)
        found[kind] = float(apart / (most or 1))
    return found
