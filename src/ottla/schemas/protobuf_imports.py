"""Protobuf files that schemas import without containing them, since every compiler or registry has them.

Those of google.protobuf and google.type come from packages of Google; those of Confluent are built here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2

from ottla.common.extras import require_packages

_GOOGLE_FILE = re.compile(r"google/(?:protobuf|type)/[a-z_]+\.proto")
_Field = descriptor_pb2.FieldDescriptorProto
_EXTENDED = ("File", "Message", "Field", "Enum", "EnumValue")
_EXTENSION_NUMBER = 1088


def known_imports(files: Iterable[Any]) -> list[Any]:
    """File descriptors that these files import but do not include, each after its own imports.

    Raises OperatorError where a package is missing. An unknown import is skipped.
    """
    given = list(files)
    names = {file.name for file in given}
    found: list[Any] = []

    def add(file: Any) -> None:
        for name in file.dependency:
            if name not in names and (known := _known(name)) is not None:
                names.add(name)
                add(known)
                found.append(known)

    for file in given:
        add(file)
    return found


def _known(name: str) -> Any | None:
    if (make := _CONFLUENT.get(name)) is not None:
        return make()
    if not _GOOGLE_FILE.fullmatch(name):
        return None
    if name.startswith("google/type/"):
        require_packages(
            f"a Protobuf schema that imports {name} needs",
            {"google.type": "googleapis-common-protos"},
            "ottla[pipeline]",
        )
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _message(file: Any, name: str, fields: Iterable[tuple[str, int]]) -> Any:
    message = file.message_type.add(name=name)
    for number, (part, type_) in enumerate(fields, 1):
        message.field.add(name=part, number=number, type=type_, label=_Field.LABEL_OPTIONAL)
    return message


def _meta() -> Any:
    """Options for documentation, parameters, tags and rules; they do not occur in values."""
    file = descriptor_pb2.FileDescriptorProto(name="confluent/meta.proto", package="confluent", syntax="proto3")
    file.dependency.append("google/protobuf/descriptor.proto")
    meta = _message(file, "Meta", [("doc", _Field.TYPE_STRING)])
    repeated = {"label": _Field.LABEL_REPEATED, "type": _Field.TYPE_MESSAGE}
    meta.field.add(name="params", number=2, type_name=".confluent.Meta.ParamsEntry", **repeated)
    meta.field.add(name="tags", number=3, label=_Field.LABEL_REPEATED, type=_Field.TYPE_STRING)
    meta.field.add(name="rules", number=4, type_name=".confluent.Rule", **repeated)
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    _message(file, "Rule", [(name, _Field.TYPE_STRING) for name in ("name", "doc", "expr", "sql")])
    for kind in _EXTENDED:
        file.extension.add(
            name=re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower() + "_meta",
            extendee=f".google.protobuf.{kind}Options",
            number=_EXTENSION_NUMBER,
            label=_Field.LABEL_OPTIONAL,
            type=_Field.TYPE_MESSAGE,
            type_name=".confluent.Meta",
        )
    return file


def _decimal() -> Any:
    """The two's complement of the digits, big-endian, with precision and scale."""
    file = descriptor_pb2.FileDescriptorProto(
        name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3"
    )
    fields = [("value", _Field.TYPE_BYTES), ("precision", _Field.TYPE_UINT32), ("scale", _Field.TYPE_INT32)]
    _message(file, "Decimal", fields)
    return file


def _variant() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="confluent/type/variant.proto", package="confluent.type", syntax="proto3"
    )
    _message(file, "Variant", [("metadata", _Field.TYPE_BYTES), ("value", _Field.TYPE_BYTES)])
    return file


_CONFLUENT = {
    "confluent/meta.proto": _meta,
    "confluent/type/decimal.proto": _decimal,
    "confluent/type/variant.proto": _variant,
}
