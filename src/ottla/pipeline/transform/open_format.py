"""The value format that the options of a command select."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.avro_format import AvroFormat
from ottla.pipeline.transform.decode_options import DEFAULT_MAP_KEYS, DecodeOptions
from ottla.pipeline.transform.protobuf_format import ProtobufFormat
from ottla.pipeline.transform.schema_file import read_struct_type
from ottla.pipeline.transform.type_hints import parse_hints
from ottla.pipeline.transform.value_format import AccessLogFormat, CsvFormat, JsonFormat, RegexFormat, ValueFormat
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.settings import open_registry, read_schema_bytes


def open_format(
    options: DecodeOptions, exact_fields: Iterable[str] = (), *, is_history: bool = True
) -> ValueFormat | None:
    """None for `raw`: values stay unchanged. `exact_fields`: fields of JSON whose numbers are never inferred as double.
    `is_history`: change events are rows (see `envelope`), not changes of the rows of their keys.

    Raises OperatorError for options that don't go together.
    """
    if options.envelope is not None:
        options = _event_options(options)
    open_one, taken = _FORMATS[options.decode]
    if options.schema is not None and (options.types or options.map_keys is not None):
        raise OperatorError("--type and --map-keys apply to inferred fields; omit them, or --schema")
    for name in (*("schema", "pattern", "message", "schema_registry", "schema_registry_ca"), *INFERRED_ONLY):
        if getattr(options, name) is not None and name not in taken:
            users = [decode for decode, (_, options_) in _FORMATS.items() if name in options_]
            option = "type" if name == "types" else name.replace("_", "-")
            raise OperatorError(
                f"--{option} has no effect with --decode {options.decode}; use it with --decode " + " or ".join(users)
            )
    found = open_one(options)
    if isinstance(found, JsonFormat):
        found = replace(found, exact_fields=frozenset(exact_fields))
    if options.envelope is None:
        return found
    from ottla.pipeline.transform.envelope_format import enveloped

    return enveloped(options.envelope, found, options.decode, is_history=is_history)


def _event_options(options: DecodeOptions) -> DecodeOptions:
    """Options for change events in JSON: they have no maps, and a number of an integer column never has a fraction."""
    if options.map_keys or any(pa.types.is_map(hint.type) for hint in parse_hints(options.types or ())):
        raise OperatorError("--map-keys and maps of --type do not apply to the rows of --envelope; omit them")
    if options.decode != "json" or options.schema is not None:
        return options
    return replace(options, map_keys=0, numbers=options.numbers or "exact")


def _open_json(options: DecodeOptions) -> ValueFormat:
    has_ids = _registry(options) is not None
    if options.schema is None:
        map_keys = DEFAULT_MAP_KEYS if options.map_keys is None else options.map_keys
        hints = parse_hints(options.types or ())
        return JsonFormat(None, has_ids, is_exact=options.numbers == "exact", map_keys=map_keys, hints=hints)
    if options.numbers is not None:
        raise OperatorError("--numbers applies to inferred fields, and --schema declares their types; omit one of them")
    return JsonFormat(read_struct_type(options.schema), has_ids)


def _open_avro(options: DecodeOptions) -> ValueFormat:
    text = read_schema_bytes(options.schema).decode("utf-8", "replace") if options.schema else None
    found = AvroFormat(text, _registry(options, needed=text is None))
    return _checked(found, options, "as an .avsc file")


def _open_protobuf(options: DecodeOptions) -> ValueFormat:
    descriptor_set = read_schema_bytes(options.schema) if options.schema else None
    if options.message is not None and descriptor_set is None:
        raise OperatorError("--message names a message of a descriptor set; add --schema FILE")
    found = ProtobufFormat(descriptor_set, options.message, _registry(options, needed=descriptor_set is None))
    return _checked(found, options, "as `protoc --include_imports --descriptor_set_out` writes it")


def _registry(options: DecodeOptions, *, needed: bool = False) -> SchemaRegistry | None:
    if options.schema_registry is not None:
        return open_registry(options.schema_registry, options.schema_registry_ca)
    if options.schema_registry_ca is not None:
        raise OperatorError("--schema-registry-ca applies to a schema registry; add --schema-registry URL")
    if needed:
        raise OperatorError(
            f"--decode {options.decode} needs the schema that values are written by: add --schema FILE, or "
            "--schema-registry URL if each value begins with the id of its schema"
        )
    return None


def _checked(found: ValueFormat, options: DecodeOptions, form: str) -> ValueFormat:
    """Check a schema file before anything is read."""
    if options.schema is not None:
        try:
            found.fields(NO_FIELDS, {})
        except ValueError as error:
            raise OperatorError(f"the schema {options.schema} can't be used {form}: {error}") from error
    return found


def _open_csv(options: DecodeOptions) -> ValueFormat:
    if options.schema:
        return CsvFormat(read_struct_type(options.schema))
    return CsvFormat(None, parse_hints(options.types or ()))


def _open_regex(options: DecodeOptions) -> ValueFormat:
    if options.pattern is None:
        raise OperatorError("--decode regex takes its columns from the named groups of a pattern; add --pattern REGEX")
    found = RegexFormat(options.pattern, read_struct_type(options.schema) if options.schema else None)
    found.decoder(found.fields(NO_FIELDS, {}))  # report a wrong pattern before anything is read
    return found


class OpenFormat(Protocol):
    """Creates the format of one value of `--decode`.

    Implementations: the functions `_open_*` of this module, which create the formats in
    `pipeline.transform.value_format`, `pipeline.transform.avro_format` and `pipeline.transform.protobuf_format`.
    """

    def __call__(self, options: DecodeOptions, /) -> ValueFormat | None:
        """Return the format; None leaves values unchanged. Raises OperatorError."""


NO_FIELDS = pa.schema([])
INFERRED_ONLY = ("numbers", "types", "map_keys")
_FORMATS: Mapping[str, tuple[OpenFormat, frozenset[str]]] = {
    "raw": (lambda _options: None, frozenset()),
    "json": (_open_json, frozenset({"schema", "schema_registry", "schema_registry_ca", *INFERRED_ONLY})),
    "avro": (_open_avro, frozenset({"schema", "schema_registry", "schema_registry_ca"})),
    "protobuf": (_open_protobuf, frozenset({"schema", "message", "schema_registry", "schema_registry_ca"})),
    "csv": (_open_csv, frozenset({"schema", "types"})),
    "regex": (_open_regex, frozenset({"schema", "pattern"})),
    "access-log": (lambda _options: AccessLogFormat(), frozenset()),
}
