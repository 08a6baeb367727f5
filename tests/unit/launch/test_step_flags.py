"""Flags that say how updates are executed, and by whom."""

from launch.flags import spec_from_flags
from ringside_core.specs import Surroundings


def test_how_steps_are_executed_is_asked_by_flags() -> None:
    """By default one update is one call of Keras' `fit`, and XLA compiles nothing."""
    plain = spec_from_flags(Surroundings())
    asked = spec_from_flags(
        Surroundings(), steps_per_execution=7, jit_compile=True, trained_by="loop"
    )

    assert (plain.steps_per_execution, plain.jit_compile, plain.trained_by) == (1, False, "fit")
    assert (asked.steps_per_execution, asked.jit_compile, asked.trained_by) == (7, True, "loop")
