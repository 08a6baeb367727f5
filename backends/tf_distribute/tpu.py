"""tf.distribute.TPUStrategy through TPUClusterResolver; refused with the reason without a TPU.

It was never run on one: tests/training/test_tpu.py holds it against the published API.
"""

import os
from typing import Any

from backends.tf_distribute.strategy import StrategyBackend
from ringside_core.keras import tf
from ringside_core.specs import BackendOptions, RefusalError
from ringside_core.specs.options import TPUOptions


class TPU(StrategyBackend):
    """All cores of one TPU or TPU slice."""

    @classmethod
    def obstacle(cls, options: BackendOptions) -> str | None:
        """No TPU is named, or the one that is cannot be found."""
        try:
            _resolve(options, look=True)
        except RefusalError as error:
            return str(error)
        return None

    def _make_strategy(self) -> Any:
        resolver = _resolve(self.spec.options)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)


def _resolve(options: BackendOptions, *, look: bool = False) -> Any:
    """The resolver of the name; it is asked for the addresses of the TPU if it is to `look`."""
    assert isinstance(options, TPUOptions)
    # TensorFlow takes the name from there too, but not the name `local`.
    name = options.tpu or os.environ.get("TPU_NAME", "")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if look:
            resolver.cluster_spec()
        return resolver
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise RefusalError(
            "The backend tpu needs a TPU.",
            received=str(error).splitlines()[0].rstrip("."),
            advice="Name one with --option tpu=NAME, or set TPU_NAME.",
        ) from None
