"""Record output of `ottla consume`: text from a template, or one line of JSON.

A template is text with fields in braces and backslash escapes, such as `{partition}:{offset}\\t{key}\\t{value}`; double
braces are literal. Keys and values are printed as raw bytes, headers as `name=value`, and a header with a null value as
`name`. JSON contains text for valid UTF-8; the field of other bytes has the suffix `_base64`.
"""

from __future__ import annotations

import codecs
import string
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.client.librdkafka.consumer import ConsumedRecord
    from ottla.common.kafka.topic_partition import TopicPartition
    from ottla.record.template import Template

Formatter = Callable[["ConsumedRecord"], bytes]
TEXT = "{value}"

FIELDS: dict[str, Callable[[ConsumedRecord], bytes | None]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: None if record.timestamp_ms is None else b"%d" % record.timestamp_ms,
    "time": lambda record: None if record.timestamp_ms is None else format_time(record.timestamp_ms).encode(),
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": lambda record: b",".join(
        name.encode() if value is None else name.encode() + b"=" + value for name, value in record.headers
    ),
    "key_size": lambda record: b"%d" % len(record.key or b""),
    "value_size": lambda record: b"%d" % len(record.value or b""),
}


def make_formatter(template: str, null: str, *, for_terminal: bool = False) -> Formatter:
    """A formatter for `json`, `text` or a template; `null` is the text of null. Raises OperatorError for an unknown
    field.

    With `for_terminal`, control characters and invalid UTF-8 in records are escaped; the template itself is not.
    """
    if template == "json":
        return (lambda record: _for_terminal(format_json(record))) if for_terminal else format_json
    return _template_formatter(template, null.encode(), for_terminal)


class BatchFormat(NamedTuple):
    """A template for whole batches: the compiled module writes their text (`BatchView.rendered`)."""

    pieces: tuple[bytes | str, ...]
    """Text, and names of fields."""
    null: bytes

    def template_of(self, key: TopicPartition) -> Template:
        """The template for the records of a partition."""
        from ottla.record import template

        known: dict[str, bytes | int] = {
            "topic": key[0].encode(),
            "partition": b"%d" % key[1],
            "offset": template.OFFSET,
            "timestamp": template.TIMESTAMP,
            "key": template.KEY,
            "value": template.VALUE,
            "key_size": template.KEY_SIZE,
            "value_size": template.VALUE_SIZE,
        }
        return tuple(piece if isinstance(piece, bytes) else known[piece] for piece in self.pieces)


IN_BATCHES = frozenset(FIELDS) - {"time", "headers"}
"""Fields that need no object for a record."""


def make_batch_format(template: str, null: str, *, for_terminal: bool = False) -> BatchFormat | None:
    """The same format for whole batches; None if it needs the records one by one. Raises OperatorError."""
    if template == "json" or for_terminal:
        return None
    pieces = _pieces(template)
    if not {piece for piece in pieces if isinstance(piece, str)} <= IN_BATCHES:
        return None
    return BatchFormat((*pieces, b"\n"), null.encode())


def _pieces(template: str) -> list[bytes | str]:
    """Text and names of fields in a template. Raises OperatorError for an unknown field."""
    pieces: list[bytes | str] = []
    template = TEXT if template == "text" else template
    try:
        parsed = list(string.Formatter().parse(unescape(template)))
    except ValueError as error:
        raise OperatorError(f"the format {template!r} is not valid: {error}") from error
    for literal, field, _, _ in parsed:
        if literal:
            pieces.append(literal.encode())
        if field is None:
            continue
        if field not in FIELDS:
            raise OperatorError(f"unknown field {field!r} in the format; fields: {', '.join(FIELDS)}")
        pieces.append(field)
    return pieces


def _for_terminal(data: bytes) -> bytes:
    return escape_control_chars(data.decode(errors="backslashreplace")).encode()


def _template_formatter(template: str, null: bytes, for_terminal: bool) -> Formatter:
    pieces: list[bytes | Callable[[ConsumedRecord], bytes | None]] = [
        piece if isinstance(piece, bytes) else FIELDS[piece] for piece in _pieces(template)
    ]
    pieces.append(b"\n")

    def format_record(record: ConsumedRecord) -> bytes:
        parts = []
        for piece in pieces:
            if isinstance(piece, bytes):
                parts.append(piece)
                continue
            part = piece(record)
            part = null if part is None else part
            parts.append(_for_terminal(part) if for_terminal else part)
        return b"".join(parts)

    return format_record


def format_json(record: ConsumedRecord) -> bytes:
    """A record as one line of JSON; headers keep their order and repetitions."""
    import json

    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """A JSON field for bytes: text under `name`, or base64 under `name_base64` when it isn't UTF-8."""
    import base64

    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def unescape(text: str) -> str:
    """Decode the backslash escapes of an argument (`\\t`, `\\n`, `\\x01`). Raises OperatorError for an invalid one."""
    if "\\" not in text:
        return text
    try:
        return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
    except UnicodeDecodeError as error:
        raise OperatorError(
            f"{text!r} contains an invalid backslash escape: use \\t, \\n, \\xHH or \\uHHHH, and \\\\ for a backslash"
        ) from error


def format_time(timestamp_ms: int) -> str:
    """A time in ISO 8601 (UTC), or the number if datetime cannot represent it."""
    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):  # outside the range of datetime
        return str(timestamp_ms)
