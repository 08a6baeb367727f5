"""What a drill has found."""

from typing import ClassVar

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ringside_core.specs import Document, Noun, Outcome, RunSpec

RESULT = "drill.json"


class Cell(Noun):
    """What became of one run with one fault.

    Attributes:
        arm: its label.
        fault: its name.
        obstacle: why it could not be made; then nothing else is set but, of a run that began, how
            it ended.
        outcomes: of each attempt, in order; the last one is the run's.
        noticed_s: from the fault to the end of the attempt, with all of its processes; None: it
            went on.
        back_s: from the fault to the first update beyond it that lasted; None: there was none.
        again: updates before the fault that were made once more; None: as `back_s`.
        other_rows: epochs that were trained on other rows than in the run without a fault.
        deviation: largest difference of a weight or an optimizer variable at the end, as a share of
            the largest number of its array; None: there is nothing to compare.
        exact: whether there is one right result: not where updates are asynchronous.
    """

    arm: str
    fault: str
    obstacle: str = ""
    outcomes: tuple[Outcome, ...] = ()
    noticed_s: NonNegativeFloat | None = None
    back_s: NonNegativeFloat | None = None
    again: int | None = None
    other_rows: NonNegativeInt = 0
    deviation: NonNegativeFloat | None = None
    exact: bool = True

    def lost_nothing(self, tolerance: float) -> bool:
        """Whether the run ended as one without a fault does."""
        if self.obstacle:
            return not self.outcomes  # a run that ended before its fault says nothing
        if not (self.outcomes and self.outcomes[-1].completed) or self.other_rows:
            return False
        if self.deviation is None:  # weights are missing, or no numbers
            return False
        return not self.exact or self.deviation <= tolerance


class Drill(Document):
    """All cells of a drill.

    Attributes:
        spec: of the first arm, without a fault.
        deadline_s: seconds without a step after which a run counted as hung.
        tolerance: the largest deviation that is none.
        struck_after: the updates after which the faults were made, by arm.
    """

    SCHEMA_VERSION: ClassVar[int] = 2

    spec: RunSpec
    deadline_s: NonNegativeFloat
    tolerance: NonNegativeFloat
    struck_after: dict[str, PositiveInt]
    cells: tuple[Cell, ...]

    def of(self, label: str) -> tuple[Cell, ...]:
        """The cells of one arm."""
        return tuple(cell for cell in self.cells if cell.arm == label)

    @property
    def lost_nothing(self) -> bool:
        """Whether no run lost anything."""
        return all(cell.lost_nothing(self.tolerance) for cell in self.cells)
