"""What Ringside asks of Keras: one Protocol, and a class for each Keras."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Keras(Protocol):
    """What the two versions of Keras call by other names. Variables are TensorFlow's.

    Attributes:
        optimizers: classes from which every optimizer derives.
        epoch_logs: name of the method of a model that says what Keras tells of an epoch.
        containers: attributes of a model that hold compiled metrics, and are no metrics to count.
    """

    optimizers: tuple[type, ...]
    epoch_logs: str
    containers: tuple[str, ...]

    def raw(self, variable: Any) -> Any:
        """TensorFlow's variable of one of Keras'."""

    def weights_of(self, model: Any) -> list[Any]:
        """The weights of a model in order, without the states of its metrics and random numbers."""

    def trainable_of(self, model: Any) -> list[Any]:
        """The trainable weights of a model."""

    def variables_of(self, optimizer: Any) -> list[Any]:
        """All variables of an optimizer in order."""

    def variable_names(self, optimizer: Any) -> list[str]:
        """Their names, such as `m/dense/kernel`, the same under every backend."""

    def slot_names(self, optimizer: Any) -> list[str]:
        """The same with the slot first, such as `momentum/dense_kernel`."""

    def build_optimizer(self, optimizer: Any, variables: Sequence[Any]) -> None:
        """Make the optimizer's own variables for these of a model (`trainable_of`)."""

    def on_apply(self, optimizer: Any, instead: Callable[..., Any]) -> None:
        """Let (apply, gradients, variables) → anything be called where an optimizer applies."""

    def set_schedule(self, optimizer: Any, schedule: Any) -> None:
        """Let an optimizer's rate follow a schedule."""

    def seed_weights(self, seed: int) -> None:
        """Seed initial weights and TensorFlow's draws, where their author has not."""

    def chance_of(self, model: Any) -> list[Any]:
        """The variables that say how the random numbers of a model's layers go on."""

    def draws(self, layer: Any) -> bool:
        """Whether a layer has a generator of random numbers."""

    def looks_at_steps(self, callback: Any) -> bool:
        """Whether a callback is called at each batch of a training."""

    def set_floatx(self, precision: str, policy: str | None) -> None:
        """Let layers compute in a precision or by a policy, unless their author says otherwise."""

    def begin_names(self) -> None:
        """Let layers that their author does not name be called as in a new process."""

    def as_in_this_thread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let a function make layers in any thread as in this one; some settings are a thread's."""
