"""The base of every noun: immutable, checked when it is built, JSON both ways."""

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, from_json, to_json

from ringside_core.specs.errors import RefusalError, refusal_from_validation

YEAR_10000_UNIX_S = 253_402_300_800  # the first second that no calendar of Python's holds
UnixSeconds = Annotated[float, Field(ge=0, lt=YEAR_10000_UNIX_S)]


def _telling_refusals(value: Any, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except RefusalError as error:
        template = "{text}"
        raise PydanticCustomError(
            "refusal", template, {"text": str(error), "refusal": error}
        ) from None


class Noun(BaseModel):
    """A frozen value. It refuses unknown fields and invalid values when it is built.

    Raises:
        RefusalError: instead of pydantic's ValidationError, so that every entry point
            says what is wrong in one message.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise refusal_from_validation(error, type(self).__name__) from None

    # The mark of pydantic's own __init__: a noun within a noun is then checked without this
    # __init__. That is faster and keeps the path of a wrong field (ModelMetaclass.__new__).
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Turn our refusals into pydantic's errors, so that pydantic adds where they happened."""
        return core_schema.no_info_wrap_validator_function(_telling_refusals, handler(source))

    def replace(self, **changes: Any) -> Self:
        """The same noun with some fields changed; it is checked again."""
        return type(self)(**{**dict(self), **changes})

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
        return json_hash(self.model_dump(mode="json"))


class Document(Noun):
    """A noun that is written to disk: its JSON has a schema version.

    A file of another version is refused. A change of the schema raises SCHEMA_VERSION.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    def to_json(self) -> str:
        """JSON text, indented, with the schema version first."""
        body = {"schema_version": self.SCHEMA_VERSION, **self.model_dump(mode="json")}
        return to_json(body, indent=1).decode()

    @classmethod
    def from_json(cls, text: str, *, origin: str = "the text") -> Self:
        """Read what `to_json` wrote.

        Raises:
            RefusalError: not JSON, another schema, or a field that is wrong.
        """
        try:
            body = from_json(text)
        except ValueError as error:
            raise RefusalError(
                f"A {cls.__name__} must be whole JSON.", received=f"{origin}: {error}"
            ) from None
        given = body.pop("schema_version", None) if isinstance(body, dict) else None
        version = given if type(given) is int else None  # to Python, true and 1.0 are equal to 1
        if version != cls.SCHEMA_VERSION:
            raise RefusalError(
                f"A {cls.__name__} must have schema version {cls.SCHEMA_VERSION}.",
                received=f"{origin}: schema_version={given!r}",
                advice="Write it again with this version of Ringside.",
            )
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise refusal_from_validation(error, cls.__name__, origin) from None


def json_hash(body: Any) -> str:
    """SHA-256 of a JSON value without spaces, keys sorted, as 64 hexadecimal digits."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ: (dotted path, first, second); None: it is missing.

    Lists of different lengths differ as a whole, by their lengths.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        for key in {**first, **second}:
            yield from differences(first.get(key), second.get(key), _joined(path, key))
    elif isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            yield path, f"{len(first)} entries", f"{len(second)} entries"
            return
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, _joined(path, index))
    elif first != second:
        yield path, first, second


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
