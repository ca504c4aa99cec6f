"""Value format `--decode protobuf`: derives the table's columns and creates the decoder.

The message type is from a descriptor set (`--schema`, `--message`). Without one, it is from the schema registry: from
the schema ids in a sample of the records, and from the newest schema of each topic.

`open_format` creates the format from the options. Decoding of values is in `protobuf_decoder`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.decoder import Decoder
from ottla.pipeline.transform.protobuf_decoder import ProtobufDecoder, message_fields
from ottla.pipeline.transform.value_format import Samples, with_fields
from ottla.schemas.ids import IdLength, SchemaId
from ottla.schemas.protobuf import (
    LargeMessageError,
    SchemaAsTextError,
    indexed_id_length,
    message_of,
    message_of_file,
    message_of_value,
    registered_message,
)
from ottla.schemas.registry import SchemaRegistry, value_subject


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

        Raises OperatorError for a topic whose newest schema is only returned as text, or is too large: none of its
        values would have their columns. A bad schema of single records only makes those records bad, and of a large one
        only the columns that the table has are read; it is refused if there are none.
        """
        if self.descriptor_set is not None:
            return message_fields(message_of_file(self.descriptor_set, self.message))
        if self.registry is None:
            return held
        large: LargeMessageError | None = None
        for number, indexes in sorted(_named(samples), key=str):
            try:
                held = with_fields(held, message_fields(registered_message(self.registry, number, indexes)))
            except LargeMessageError as error:
                large = error
            except ValueError:
                continue
        for topic in samples:
            held = with_fields(held, _newest_fields(self.registry, topic))
        if large is not None and not held.names:
            raise OperatorError(
                f"a schema in the schema registry can't be used: {large}; nothing was loaded"
            ) from large
        return held

    def decoder(self, fields: pa.Schema) -> Decoder:
        return ProtobufDecoder(fields, self.descriptor_set, self.message, self.registry)


def _newest_fields(registry: SchemaRegistry, topic: str) -> pa.Schema:
    """The fields of a topic's newest schema, none without a usable one. Raises OperatorError."""
    newest = registry.latest(value_subject(topic))
    if newest is None:
        return pa.schema([])
    refused = f"the schema of the topic {topic!r} in the schema registry can't be used"
    try:
        return message_fields(message_of(registry, newest, f"{topic}-value.proto", (0,)))
    except SchemaAsTextError as error:
        raise OperatorError(
            f"{refused}: {error} in addition to --schema-registry, and --message NAME if it has several messages; "
            "nothing was loaded"
        ) from error
    except LargeMessageError as error:
        raise OperatorError(f"{refused}: {error}; nothing was loaded") from error
    except ValueError:
        return pa.schema([])


def _named(samples: Samples) -> set[tuple[SchemaId, tuple[int, ...]]]:
    """The schema ids in a sample, each with its message indexes."""
    found = set()
    for values in samples.values():
        for value in values.drop_null().to_pylist():
            with suppress(ValueError):
                number, indexes, _ = message_of_value(value)
                found.add((number, indexes))
    return found
