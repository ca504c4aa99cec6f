"""Records from Confluent's serializers, in a separate environment: `serializers.py SCENARIO JSON`.

The JSON object contains `bootstrap`, `registry` and `topic`. Each scenario is a function of that name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from uuid import UUID

from confluent_kafka import Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

F = descriptor_pb2.FieldDescriptorProto
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}, {"name": "since", "type": {"type": "int", "logicalType": "date"}}],
}
PLAIN = json.dumps({"type": "record", "name": "Plain", "fields": [{"name": "id", "type": "int"}]})
LONGER = json.dumps(
    {"type": "record", "name": "Plain", "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}]}
)
UNKNOWN_ID = 999_999
UNKNOWN_GUID = UUID(int=7)


def order(id_type: str, amount_type: str, *fields: dict) -> str:
    names = {"id": id_type, "amount": amount_type, "customer": "shop.Customer"}
    own = [{"name": name, "type": type_} for name, type_ in names.items()]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [*own, *fields]})


class Topic:
    """Sends values, each through a serializer, and waits for all deliveries."""

    def __init__(self, bootstrap: str, registry: str, topic: str) -> None:
        self.name = topic
        self.registry = SchemaRegistryClient({"url": registry})
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})

    def send(self, serialize: Callable, values: Iterable) -> None:
        for value in values:
            headers: list = []
            data = serialize(value, SerializationContext(self.name, MessageField.VALUE, headers))
            self._producer.produce(self.name, data, headers=headers)

    def finish(self) -> None:
        if self._producer.flush(60):
            raise SystemExit("not all records were delivered")


def avro_orders(topic: Topic, id_type: str, amount_type: str, values: Iterable, *fields: dict) -> None:
    customers = f"{topic.name}-customer"
    topic.registry.register_schema(customers, Schema(json.dumps(CUSTOMER), "AVRO"))
    references = [SchemaReference("shop.Customer", customers, 1)]
    schema = Schema(order(id_type, amount_type, *fields), "AVRO", references)
    topic.send(AvroSerializer(topic.registry, schema), values)


def avro(topic: Topic) -> None:
    values = [{"id": n, "amount": n / 2, "customer": {"name": f"c{n}", "since": 20_000 + n}} for n in range(3)]
    avro_orders(topic, "int", "float", values)


def avro_evolved(topic: Topic) -> None:
    """Two fields get wider types and one field is new; the second value needs the wider types."""
    value = {"id": 9, "amount": 0.5, "customer": {"name": "late", "since": 0}, "note": "new"}
    values = [value, value | {"id": 1 << 40, "amount": 0.1}]
    avro_orders(topic, "long", "double", values, {"name": "note", "type": ["null", "string"], "default": None})


def avro_by_record_name(topic: Topic) -> None:
    """Uses a subject that does not depend on the topic name."""
    config = {"subject.name.strategy": record_subject_name_strategy}
    topic.send(AvroSerializer(topic.registry, PLAIN, conf=config), [{"id": 5}])


def avro_late_schema(topic: Topic) -> None:
    """One value amid many, outside of the topic's sample, has a different schema."""
    plain, longer = (AvroSerializer(topic.registry, schema) for schema in (PLAIN, LONGER))
    topic.send(plain, ({"id": number} for number in range(1_200)))
    topic.send(longer, [{"id": 1_200, "note": "x"}])
    topic.send(plain, ({"id": number} for number in range(1_201, 2_500)))


def number_in_header(payload: bytes, ctx: SerializationContext, schema_id: object) -> bytes:
    ctx.headers.append(("__value_schema_id", schema_id.id_to_bytes()))
    return payload


def guid_in_header(payload: bytes, ctx: SerializationContext, schema_id: object) -> bytes:
    """Behaves like a registry with GUIDs."""
    schema_id.guid = UNKNOWN_GUID
    return header_schema_id_serializer(payload, ctx, schema_id)


def avro_headers(topic: Topic) -> None:
    """An id in a header, a GUID in a header, and an id in front of the value."""
    for number, place in enumerate((number_in_header, guid_in_header, prefix_schema_id_serializer)):
        topic.send(AvroSerializer(topic.registry, PLAIN, conf={"schema.id.serializer": place}), [{"id": number}])


def unknown_id(payload: bytes, ctx: SerializationContext, schema_id: object) -> bytes:
    schema_id.id = UNKNOWN_ID
    return prefix_schema_id_serializer(payload, ctx, schema_id)


def avro_unknown(topic: Topic) -> None:
    """A good value, and values with an unknown id, without an id, and with a GUID."""
    topic.send(AvroSerializer(topic.registry, PLAIN, conf={"schema.id.serializer": unknown_id}), [{"id": 0}])
    topic.send(AvroSerializer(topic.registry, PLAIN), [{"id": 1}])
    topic.send(
        lambda value, _: value, [b"plain text", b"\x00\xff\xff\xff\xff\x02", b"\x01" + UNKNOWN_GUID.bytes + b"\x02"]
    )


def messages() -> tuple:
    """Returns the classes of the second message of a file and of one nested in it; the file imports another."""
    money = proto_file("shop/money.proto")
    field(money.message_type.add(name="Money"), "units", F.TYPE_INT64)
    orders = proto_file("shop/orders.proto", "shop/money.proto", timestamp_pb2.DESCRIPTOR.name)
    field(orders.message_type.add(name="Other"), "x", F.TYPE_BOOL)
    outer = orders.message_type.add(name="Order")
    field(outer, "id", F.TYPE_INT64)
    field(outer, "at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    inner = outer.nested_type.add(name="Line")
    field(inner, "sku", F.TYPE_STRING)
    field(inner, "price", F.TYPE_MESSAGE, ".shop.Money")
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (money, orders):
        pool.Add(file)
    return tuple(GetMessageClass(pool.FindMessageTypeByName(name)) for name in ("shop.Order", "shop.Order.Line"))


def proto_file(name: str, *imports: str) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3", dependency=imports)


def field(message: object, name: str, kind: int, type_name: str | None = None) -> None:
    number = len(message.field) + 1
    message.field.add(name=name, number=number, type=kind, type_name=type_name, label=F.LABEL_OPTIONAL)


def protobuf(topic: Topic) -> None:
    make_order, make_line = messages()
    order_serializer, line_serializer = (ProtobufSerializer(one, topic.registry) for one in (make_order, make_line))
    first = make_order(id=1)
    first.at.seconds = 1_700_000_000
    topic.send(order_serializer, [first])
    topic.send(line_serializer, [make_line(sku="tea", price={"units": 1 << 40}), make_line(sku="gift")])


def protobuf_text(topic: Topic) -> None:
    """Registers the schema as Java's serializers do: as the text of a file."""
    text = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'
    registered = topic.registry.register_schema(f"{topic.name}-value", Schema(text, "PROTOBUF"))

    def by_text(payload: bytes, ctx: SerializationContext, schema_id: object) -> bytes:
        schema_id.id, schema_id.message_indexes = registered, [0]
        return prefix_schema_id_serializer(payload, ctx, schema_id)

    _, make_line = messages()
    config = {"schema.id.serializer": by_text, "subject.name.strategy": lambda ctx, name, *_: f"{topic.name}-other"}
    topic.send(ProtobufSerializer(make_line, topic.registry, config), [make_line(sku="tea")])


def json_schema(topic: Topic) -> None:
    customer = {"title": "Customer", "type": "object", "properties": {"name": {"type": "string"}}}
    topic.registry.register_schema(f"{topic.name}-customer", Schema(json.dumps(customer), "JSON"))
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "customer": {"$ref": "customer.json"}},
    }
    reference = SchemaReference("customer.json", f"{topic.name}-customer", 1)
    serializer = JSONSerializer(Schema(json.dumps(schema), "JSON", [reference]), topic.registry)
    topic.send(serializer, [{"id": number, "customer": {"name": f"c{number}"}} for number in range(3)])


SCENARIOS = (
    avro,
    avro_by_record_name,
    avro_evolved,
    avro_headers,
    avro_late_schema,
    avro_unknown,
    json_schema,
    protobuf,
    protobuf_text,
)

if __name__ == "__main__":
    target = Topic(**json.loads(sys.argv[2]))
    {scenario.__name__: scenario for scenario in SCENARIOS}[sys.argv[1]](target)
    target.finish()
