"""Value formats of `--decode`: the fields of values and their decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.access_log_decoder import SCHEMA as ACCESS_LOG_SCHEMA
from ottla.pipeline.transform.access_log_decoder import AccessLogDecoder
from ottla.pipeline.transform.csv_decoder import CsvDecoder, column_count, infer_csv_schema
from ottla.pipeline.transform.decoder import Decoder
from ottla.pipeline.transform.json_decoder import JsonDecoder
from ottla.pipeline.transform.json_inference import InferredFields, declared_fields, infer_json
from ottla.pipeline.transform.regex_decoder import RegexDecoder, group_names
from ottla.pipeline.transform.type_hints import with_hints
from ottla.pipeline.transform.widening import adapted, respelled
from ottla.schemas.ids import IdLength, id_length

NO_HINTS = pa.schema([])
Samples = Mapping[str, pa.Array]
"""Topic -> some values of the records to load."""


class ValueFormat(Protocol):
    """One of the formats of `--decode`, with its schema if one was given.

    Implementations: in `pipeline.transform.value_format`, `pipeline.transform.avro_format`,
    `pipeline.transform.protobuf_format` and `pipeline.transform.envelope_format`; `pipeline.transform.open_format`
    selects.
    """

    @property
    def is_inferred(self) -> bool:
        """True if the fields come from a sample: the table's existing columns stay, and no mismatch is an error."""

    @property
    def id_length(self) -> IdLength | None:
        """The length of the ids that values or their headers begin with, None without ids: see `schema_ids`."""

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        """The fields of values. `held`: fields with columns in the table. Raises OperatorError."""

    def decoder(self, fields: pa.Schema) -> Decoder:
        """A decoder to these fields, which have the table's types. Raises OperatorError."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """`has_ids`: values begin with the id of a schema, as those of a registry do; it is skipped.

    `is_exact`, `exact_fields` and `map_keys`: as in `json_inference.infer_json`. `hints`: types of some fields.
    """

    schema: pa.Schema | None = None
    has_ids: bool = False
    is_exact: bool = True
    exact_fields: frozenset[str] = frozenset()
    map_keys: int = 0
    hints: pa.Schema = NO_HINTS

    @property
    def is_inferred(self) -> bool:
        return self.schema is None

    @property
    def id_length(self) -> IdLength | None:
        return id_length if self.has_ids else None

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        return self.infer(held, samples).schema

    def infer(self, held: pa.Schema, samples: Samples) -> InferredFields:
        """Inferred fields are added to those of the table: a field that no sample has may still come."""
        if self.schema is not None:
            return declared_fields(self.schema)
        values = chain.from_iterable(values.drop_null().to_pylist() for values in samples.values())
        found = infer_json(
            map(self._document, values),
            is_exact=self.is_exact,
            exact_fields=self.exact_fields,
            map_keys=self.map_keys,
        )
        fields = with_hints(found.schema, self.hints, held)
        named = respelled(pa.struct(list(fields)), pa.struct(list(held)))
        return replace(found, schema=with_fields(held, pa.schema(list(named))))

    def decoder(self, fields: pa.Schema) -> Decoder:
        return JsonDecoder(fields, self.has_ids, self.is_inferred)

    def _document(self, value: bytes) -> bytes | None:
        """A value without its id; None if it has none, and will be a dead letter."""
        try:
            return value[id_length(value) :] if self.has_ids else value
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class CsvFormat:
    schema: pa.Schema | None = None
    hints: pa.Schema = NO_HINTS

    @property
    def is_inferred(self) -> bool:
        return self.schema is None

    @property
    def id_length(self) -> IdLength | None:
        return None

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        return self.infer(held, samples).schema

    def infer(self, held: pa.Schema, samples: Samples) -> InferredFields:
        """The columns of an existing table settle the width: another sample can't change it."""
        if self.schema is not None:
            return declared_fields(self.schema)
        values = pa.chunked_array(samples.values(), pa.binary()).combine_chunks()
        found = infer_csv_schema(values, column_count(held.names))
        unknown = [name for name in self.hints.names if name not in found.names]
        if unknown and found.names:
            raise OperatorError(f"--type names {unknown[0]!r}, but the columns of CSV are c0 to {found.names[-1]}")
        return InferredFields(with_hints(found, self.hints, held) if found.names else found)

    def decoder(self, fields: pa.Schema) -> Decoder:
        return CsvDecoder(fields, self.is_inferred)


@dataclass(frozen=True, slots=True)
class RegexFormat:
    pattern: str
    schema: pa.Schema | None = None

    @property
    def is_inferred(self) -> bool:
        return False

    @property
    def id_length(self) -> IdLength | None:
        return None

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        return self.schema or pa.schema([(name, pa.string()) for name in group_names(self.pattern)])

    def decoder(self, fields: pa.Schema) -> Decoder:
        return RegexDecoder(self.pattern, fields)


@dataclass(frozen=True, slots=True)
class AccessLogFormat:
    @property
    def is_inferred(self) -> bool:
        return False

    @property
    def id_length(self) -> IdLength | None:
        return None

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        return ACCESS_LOG_SCHEMA

    def decoder(self, fields: pa.Schema) -> Decoder:
        return AccessLogDecoder()


def with_fields(held: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The fields of both; a type of `held` stays if it can hold the new values, or can't be widened."""
    return pa.schema(list(adapted(pa.struct(list(held)), pa.struct(list(found)))))
