"""Arm: one configuration that is verified and measured."""

from typing import Any

from pydantic import PositiveInt, SerializeAsAny, model_validator

from specs.noun import Noun
from specs.options import BackendOptions, with_typed_options


class Arm(Noun):
    """A backend with its options at a size.

    Attributes:
        label: unique in its comparison, such as `horovod:controller=mpi ×2`.
        group: arms that differ only in their number of replicas share it: the label without size.
    """

    label: str
    group: str
    backend: str
    options: SerializeAsAny[BackendOptions]
    replicas: PositiveInt

    @model_validator(mode="before")
    @classmethod
    def _type_the_options(cls, data: dict[str, Any]) -> dict[str, Any]:
        return with_typed_options(data)
