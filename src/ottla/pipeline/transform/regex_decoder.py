"""Decoder of text lines with a regular expression (RE2 syntax), which has a named group for each column.

The expression must match the whole value. Without a schema all columns are text. With a schema the text of a group is
cast to the column's type, and empty text is null except in a text column. RE2 runs in linear time for every expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import re2

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.decoder import DecodedValues, decode_by_halves
from ottla.pipeline.transform.text_cast import cast_field, require_castable


@dataclass(frozen=True, slots=True)
class RegexDecoder:
    """`pattern` has a named group for each column of `schema`; further named groups are ignored."""

    pattern: str
    schema: pa.Schema

    def __post_init__(self) -> None:
        """Raises OperatorError for an invalid expression, a column without a group, and a type that text can't be cast
        to."""
        groups = group_names(self.pattern)
        for column in self.schema:
            if column.name not in groups:
                raise OperatorError(
                    f"the schema has the column {column.name!r}, but the pattern has no group of that name"
                )
            require_castable(column)

    def most_cells(self, values: pa.Array) -> int:
        return len(values) * len(self.schema)

    def decode(self, values: pa.Array) -> DecodedValues:
        return decode_by_halves(values, self.schema, self._parse)

    def _parse(self, values: pa.Array) -> pa.RecordBatch:
        groups = extract_groups(values, self.pattern)
        return pa.RecordBatch.from_arrays(
            [cast_field(groups.field(column.name), column) for column in self.schema], schema=self.schema
        )


def extract_groups(values: pa.Array, pattern: str) -> pa.StructArray:
    """The groups of each value as text, empty for an unmatched group. Raises ValueError unless all values match."""
    groups = pc.extract_regex(values.cast(pa.string()), rf"\A(?:{pattern})\z")
    if groups.null_count:
        raise ValueError("the value does not match the pattern")
    return groups


def group_names(pattern: str) -> Sequence[str]:
    """The named groups in the order of the expression. Raises OperatorError."""
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise OperatorError(f"the pattern {pattern!r} is not a valid regular expression of RE2: {text}") from error
    names = sorted(compiled.groupindex, key=compiled.groupindex.__getitem__)
    if not names or compiled.groups != len(names):
        raise OperatorError(
            f"the pattern {pattern!r} has {compiled.groups} groups, {len(names)} of them named: its columns are its "
            "groups, each named as in (?P<status>[0-9]+); groups without a column are written (?:...)"
        )
    return names
