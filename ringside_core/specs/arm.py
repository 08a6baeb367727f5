"""Arm: one configuration that Ringside verifies and measures."""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import PositiveInt, SerializeAsAny, create_model, model_validator

from ringside_core.specs.backends import Capabilities, backend_row, with_typed_options
from ringside_core.specs.errors import RefusalError
from ringside_core.specs.knob import knobs
from ringside_core.specs.noun import Noun
from ringside_core.specs.options import BackendOptions
from ringside_core.specs.run_spec import Ablation, TrainingSpec

if TYPE_CHECKING:

    class Settings(Noun):
        """What an arm sets for itself, besides the options of its backend; None: as all arms.

        A field for each knob with `per_arm`; threads are of one replica.
        """

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    Settings = create_model(
        "Settings",
        __base__=Noun,
        **{
            knob.name: (Annotated[knob.field.annotation, *knob.field.metadata] | None, None)
            for knob in knobs(TrainingSpec)
            if knob.knob.per_arm
        },
    )


class Arm(Noun):
    """A backend with its options at a size.

    Attributes:
        label: unique in its comparison, such as `horovod:controller=mpi ×2`.
        group: arms that differ only in their number of replicas share it: the label without size.
        settings: what the arm sets for itself beside the options.
        twin_of: label of another arm that is the same in everything else. The difference between
            the two is the noise floor. Empty: this arm is no twin.
        tuned_from: label of the arm whose settings a search has changed. Empty: not tuned.
        ablation: what its runs leave out, see RunSpec; then it is a breakdown arm.
        global_batch: of its runs; None: as the comparison's scaling says. Given only to
            breakdown arms.
    """

    label: str
    group: str
    backend: str
    options: SerializeAsAny[BackendOptions]
    replicas: PositiveInt
    settings: Settings = Settings()
    twin_of: str = ""
    tuned_from: str = ""
    ablation: Ablation = "none"
    global_batch: PositiveInt | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is able to do."""
        return backend_row(self.backend).capabilities

    @property
    def for_breakdown(self) -> bool:
        """Whether it runs only for the breakdown of other arms: neither certified nor ranked."""
        return self.ablation != "none" or self.global_batch is not None

    _type_the_options = model_validator(mode="before")(with_typed_options)

    @model_validator(mode="after")
    def _is_no_twin_of_itself(self) -> Self:
        if self.twin_of == self.label:
            raise RefusalError("A twin must have a label of its own.", received=self.label)
        return self
