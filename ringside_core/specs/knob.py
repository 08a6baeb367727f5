"""A knob is declared once, as a field: its flag, the setting of an arm and the search read it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

KnobValue = bool | int | float | str


@dataclass(frozen=True)
class Knob:
    """What the command line and an arm do with a field; it stands in the field's annotation.

    `prefetch: Annotated[NonNegativeInt, Knob("Batches prepared ahead.", per_arm=True)] = 2`

    Attributes:
        help: of its flag; empty: it has none.
        names: of its flag, the longest first. Default: `--` and the name of the field.
        open: the flag has no default, `spec_from_flags` finds the value.
        per_arm: an arm may have a value of its own: `horovod:prefetch=4`.
        one_run: commands of several arms do not have the flag.
    """

    help: str = ""
    names: tuple[str, ...] = ()
    open: bool = False
    per_arm: bool = False
    one_run: bool = False


@dataclass(frozen=True)
class Search:
    """Values of a field that `ringside compare --tuned` tries; it stands in the annotation.

    Attributes:
        values: worth a trial.
        needs: what the arm must have, or they have no effect: `gpus`, several `replicas`, several
            `hosts`, Horovod's controller `mpi`.
    """

    values: tuple[KnobValue, ...]
    needs: tuple[Literal["gpus", "replicas", "hosts", "mpi"], ...] = ()


@dataclass(frozen=True)
class KnobField:
    """A knob of a noun: `path` leads to the field, which may be of a noun within."""

    name: str
    path: tuple[str, ...]
    field: FieldInfo

    @property
    def knob(self) -> Knob:
        """Its declaration; of an option of a backend, an empty one."""
        return next((x for x in self.field.metadata if isinstance(x, Knob)), Knob())

    @property
    def searches(self) -> list[Search]:
        """What a search tries."""
        return [x for x in self.field.metadata if isinstance(x, Search)]


def knobs(kind: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[KnobField]:
    """The knobs of a noun and of the nouns within, in the order of their fields."""
    for name, field in kind.model_fields.items():
        found = KnobField(name, (*path, name), field)
        if found.knob.names:
            flag = found.knob.names[0].lstrip("-").replace("-", "_")
            found = replace(found, name=flag)
        if any(isinstance(x, Knob | Search) for x in field.metadata):
            yield found
        if isinstance(within := field.annotation, type) and issubclass(within, BaseModel):
            yield from knobs(within, (*path, name))


def with_values(kind: type[BaseModel], values: Mapping[str, Any], start: Any = None) -> Any:
    """The fields that values change, from the names of knobs; inner nouns are those of `start`.

    Raises:
        TypeError: a value of no knob.
    """
    fields: dict[str, Any] = {}
    within: dict[str, dict[str, Any]] = {}
    left = dict(values)
    for knob in knobs(kind):
        if knob.name in left:
            first, *rest = knob.path
            place = within.setdefault(first, {}) if rest else fields
            place[knob.path[-1]] = left.pop(knob.name)
    if left:
        raise TypeError(f"{kind.__name__} has no knob {', '.join(left)}.")
    for name, changes in within.items():
        noun = kind.model_fields[name].default if start is None else getattr(start, name)
        fields[name] = noun.replace(**changes)
    return fields
