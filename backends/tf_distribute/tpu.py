"""tf.distribute.TPUStrategy through TPUClusterResolver. Needs a TPU; refused with the reason else."""

from typing import Any, ClassVar

from backends.base import StrategyBackend
from specs import RefusalError
from specs.options import TPUOptions
from workloads.legacy_keras import tf


class TPU(StrategyBackend):
    """All cores of one TPU or TPU slice."""

    name: ClassVar[str] = "tpu"

    def _make_strategy(self) -> Any:
        options = self.spec.options
        assert isinstance(options, TPUOptions)
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=options.tpu)
            tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
        except (ValueError, tf.errors.OpError) as error:
            raise RefusalError(
                "The backend tpu needs a TPU.",
                received=str(error).splitlines()[0],
                advice="Name one with --option tpu=NAME, or set TPU_NAME.",
            ) from None
        return tf.distribute.TPUStrategy(resolver)
