"""Seeds of a script that sets none: all processes that run it draw the same. No TensorFlow here."""

import importlib.abc
import importlib.util
import random
import sys
from typing import Any

import numpy as np

SCRIPT_SEED = 1_383_624_295


def seed_script() -> None:
    """Seed all random numbers, TensorFlow's once it is imported; a script may seed them later."""
    random.seed(SCRIPT_SEED)
    np.random.seed(SCRIPT_SEED)
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(SCRIPT_SEED)
    else:
        sys.meta_path.insert(0, _Seeds())


class _Seeds(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, and seeds it once it is there."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """None for all other modules."""
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def seeded(module: Any) -> None:
            execute(module)
            module.random.set_seed(SCRIPT_SEED)

        vars(spec.loader)["exec_module"] = seeded
        return spec
