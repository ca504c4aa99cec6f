"""Value format `--decode protobuf`: derives the table's columns and creates the decoder.

The message type is from a descriptor set (`--schema`, `--message`). Without one, it is from the schema registry: from
the schema ids in a sample of the records, and from the newest schema of each topic.

`open_format` creates the format from the options. Decoding of values is in `protobuf_decoder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.decoder import Decoder
from ottla.pipeline.transform.protobuf_decoder import (
    ProtobufDecoder,
    SchemaAsTextError,
    indexed_id_length,
    message_fields,
    message_of,
    message_of_file,
    message_of_value,
    registered_message,
)
from ottla.pipeline.transform.registry import SchemaRegistry, value_subject
from ottla.pipeline.transform.schema_ids import IdLength, SchemaId
from ottla.pipeline.transform.value_format import Samples, with_fields


@dataclass(frozen=True, slots=True)
class ProtobufFormat:
    """At least one of a descriptor set, with the name of a message if it has several, and a registry."""

    descriptor_set: bytes | None = None
    message: str | None = None
    registry: SchemaRegistry | None = None

    @property
    def is_inferred(self) -> bool:
        return self.descriptor_set is None

    @property
    def id_length(self) -> IdLength | None:
        return indexed_id_length if self.registry else None

    def fields(self, held: pa.Schema, samples: Samples) -> pa.Schema:
        """With a registry: the fields of the table, of the messages in the sample, and of the newest schemas.

        Raises OperatorError for a topic whose newest schema is only returned as text: all its values would be dead
        letters. A bad schema of single records only makes those records bad.
        """
        if self.descriptor_set is not None:
            return message_fields(message_of_file(self.descriptor_set, self.message))
        for message in self._messages(samples):
            held = with_fields(held, message_fields(message))
        return held

    def decoder(self, fields: pa.Schema) -> Decoder:
        return ProtobufDecoder(fields, self.descriptor_set, self.message, self.registry)

    def _messages(self, samples: Samples) -> Iterator[Descriptor]:
        """The usable message types; values of the others become dead letters."""
        if self.registry is None:
            return
        for number, indexes in sorted(_named(samples), key=str):
            with suppress(ValueError):
                yield registered_message(self.registry, number, indexes)
        for topic in samples:
            newest = self.registry.latest(value_subject(topic))
            if newest is not None:
                try:
                    yield message_of(self.registry, newest, f"{topic}-value.proto", (0,))
                except SchemaAsTextError as error:
                    raise OperatorError(
                        f"the schema of the topic {topic!r} in the schema registry can't be used: {error} in addition "
                        "to --schema-registry, and --message NAME if it has several messages; nothing was loaded"
                    ) from error
                except ValueError:
                    continue


def _named(samples: Samples) -> set[tuple[SchemaId, tuple[int, ...]]]:
    """The schema ids in a sample, each with its message indexes."""
    found = set()
    for values in samples.values():
        for value in values.drop_null().to_pylist():
            with suppress(ValueError):
                number, indexes, _ = message_of_value(value)
                found.add((number, indexes))
    return found
