"""Bound of the fields of a schema: a short text can define many by using names again."""

from __future__ import annotations

MAX_FIELDS = 10_000


class TooManyFieldsError(ValueError):
    """A schema has more than MAX_FIELDS fields."""


class FieldCount:
    """Counts the fields of a schema, of all levels: a short text can define many fields by reusing names."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        """Raises TooManyFieldsError beyond MAX_FIELDS."""
        self._count += 1
        if self._count > MAX_FIELDS:
            raise TooManyFieldsError(f"it has more than {MAX_FIELDS:,} fields of all levels")
