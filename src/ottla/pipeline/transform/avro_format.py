"""Value format `--decode avro`: derives the table's columns and creates the decoder.

The schema is from a file (`--schema`). Without one, it is from the schema registry: from the schema ids in a sample of
the records, and from the newest schema of each topic.

`open_format` creates the format from the options. Decoding of values is in `avro_decoder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipeline.transform.avro_decoder import AvroDecoder, avro_of, registered_avro
from ottla.pipeline.transform.avro_schema import AvroSchema, parse_avro
from ottla.pipeline.transform.decoder import Decoder
from ottla.pipeline.transform.schema_ids import schema_ids
from ottla.pipeline.transform.value_format import Samples, with_fields
from ottla.schemas.ids import IdLength, id_length
from ottla.schemas.registry import SchemaRegistry, value_subject


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """At least one of a schema's text and a registry. `connect_types`: as in `parse_avro`."""

    text: str | None = None
    registry: SchemaRegistry | None = None
    connect_types: bool = False

    @property
    def is_inferred(self) -> bool:
        return self.text is None

    @property
    def id_length(self) -> IdLength | None:
        return id_length if self.registry else None

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        """With a registry: the fields of the table, of the sample's schemas, and of the newest schemas."""
        if self.text is not None:
            return parse_avro(self.text, connect_types=self.connect_types).fields
        for schema in self._schemas(samples):
            held = with_fields(held, schema.fields)
        return held

    def decoder(self, fields: pa.Schema) -> Decoder:
        return AvroDecoder(fields, None if self.registry else self.text, self.registry, self.connect_types)

    def _schemas(self, samples: Samples) -> Iterator[AvroSchema]:
        """The usable schemas; values of the others become dead letters."""
        if self.registry is None:
            return
        for number in dict.fromkeys(number for values in samples.values() for number in schema_ids(values)):
            with suppress(ValueError):
                yield registered_avro(self.registry, number, connect_types=self.connect_types)
        for topic in samples:
            newest = self.registry.latest(value_subject(topic))
            if newest is not None:
                with suppress(ValueError):
                    yield avro_of(self.registry, newest, connect_types=self.connect_types)
