"""Archives of arrays (.npz) as they are read: nothing in them is executed."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an archive, by name.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, no archive, or holds what only pickle can read.
    """
    with path.open("rb") as stream:  # NumPy would keep a damaged file open if it opened it
        try:
            with np.load(stream, allow_pickle=False) as stored:
                return dict(stored)
        except Exception as error:  # zipfile, zlib and NumPy have a dozen for damaged bytes
            raise ValueError(f"{type(error).__name__}: {error}") from None
