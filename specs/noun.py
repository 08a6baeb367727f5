"""The base of every noun: immutable, checked when it is built, JSON both ways."""

import hashlib
import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from specs.errors import RefusalError, refusal_from_validation


class Noun(BaseModel):
    """A frozen value that refuses unknown fields and nonsense when it is built.

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

    def replace(self, **changes: Any) -> Self:
        """The same noun with some fields changed, checked anew."""
        return type(self)(**{**dict(self), **changes})

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hexadecimal digits."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


class Document(Noun):
    """A noun that is written to disk: its JSON carries a schema version.

    A file of another version is refused; a change of schema raises SCHEMA_VERSION, adds a line to
    the history in the subclass's docstring and a migration.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    def to_json(self) -> str:
        """JSON text, indented, with the schema version first."""
        body = {"schema_version": self.SCHEMA_VERSION, **self.model_dump(mode="json")}
        return json.dumps(body, indent=1)

    @classmethod
    def from_json(cls, text: str, *, origin: str = "the text") -> Self:
        """Read what `to_json` wrote.

        Args:
            text: the JSON.
            origin: where it came from, for the message.

        Raises:
            RefusalError: not JSON, another schema, or a field that is wrong.
        """
        try:
            body = json.loads(text)
        except json.JSONDecodeError as error:
            raise RefusalError(
                f"A {cls.__name__} must be whole JSON.", received=f"{origin}: {error}"
            ) from None
        version = body.pop("schema_version", None) if isinstance(body, dict) else None
        if isinstance(body, dict) and isinstance(version, int):
            body, version = cls._migrated(body, version)
        if version != cls.SCHEMA_VERSION:
            raise RefusalError(
                f"A {cls.__name__} must have schema version {cls.SCHEMA_VERSION}.",
                received=f"{origin}: schema_version={version!r}",
                advice="Write it again with this version of Ringside.",
            )
        return cls(**body)

    @classmethod
    def _migrated(cls, body: dict[str, Any], version: int) -> tuple[dict[str, Any], int]:
        """The fields of an older schema version as those of a newer one, and which that is."""
        return body, version
