"""Masks of records: parts that are replaced before a filter, a match or a report of a search sees them.

A mask belongs to one topic and one user. It replaces a whole key, a whole value, headers by name, or fields of decoded
objects. `search.subject.MaskedSubject` applies it.

**Invariant:** a part that cannot be masked by field is hidden as a whole: one that cannot be decoded, or is not an
object or a list. A field is hidden with all that is in it if the record has another structure than the path. Null is
masked like any other content, since a query could test for it.

Not masked: names of fields and headers, the number of elements, timestamp, partition, offset and producer id. The
partition of a record is a hash of its key.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from ottla.common.errors import OperatorError
from ottla.search.decoders import DECODED_NULL, Decoded, Headers
from ottla.search.parser import parse_path
from ottla.search.syntax import HEADERS, KEY, VALUE, Path, QueryError, Segment
from ottla.search.values import json_text

MASKED = "masked"
"""Name of the decoder of a part that is masked as a whole."""
HIDDEN = "[hidden]"
NOT_FOUND = "[hidden: masked fields were not found]"
METHODS = "hidden, hash, or last N with N from 1 to 16"
HASH_DIGITS = 16
MAX_SEGMENTS = 32
_STARS = "****"
_METHOD = re.compile(r"(hidden|hash)|last ([1-9]|1[0-6])", re.ASCII)


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Replaces the content at `path`, which begins with `key`, `value` or `headers`.

    `method` is `hidden`, `hash` or `last`. A hash is the same for the same content of this path, and has a secret key.
    `last` keeps the last `last` characters of a text or a number with at least twice as many.
    """

    path: Path
    method: str
    last: int = 0


def parse_rule(path_text: str, method_text: str) -> MaskRule:
    """A rule of a path such as `value.card.number` and a method of METHODS. Raises OperatorError."""
    try:
        path = parse_path(path_text)
    except QueryError as error:
        raise OperatorError(
            f"{path_text!r} is not a path: at character {error.position + 1} it needs {error.expected}"
        ) from None
    if path.root not in (KEY, VALUE, HEADERS):
        raise OperatorError(f"{path_text!r} can't be masked: a path begins with {KEY}, {VALUE} or {HEADERS}")
    if len(path.segments) > MAX_SEGMENTS:
        raise OperatorError(f"{path_text!r} has more than {MAX_SEGMENTS} names and indexes")
    if path.root == HEADERS and len(path.segments) != 1:
        raise OperatorError(f'{path_text!r} is not a header: use headers["NAME"], or headers[*] for all of them')
    method = _METHOD.fullmatch(method_text)
    if method is None:
        raise OperatorError(f"{method_text!r} is not a method: use {METHODS}")
    return MaskRule(path, method[1] or "last", int(method[2] or 0))


class MaskedPart(NamedTuple):
    """A masked key or value: its replacement as bytes, and decoded. `is_found` is false if it is hidden as a whole
    because its masked fields were not found."""

    data: bytes | None
    decoded: Decoded
    is_found: bool = True


class RecordMask:
    """The rules of one topic for one user; picklable, for other processes."""

    def __init__(self, topic: str, rules: Sequence[MaskRule], secret: bytes) -> None:
        """`secret` is the key of hashes."""
        self.topic = topic
        self.rules = tuple(rules)
        self._secret = secret
        self._whole = {root: tuple(each for each in rules if each.path == Path(root)) for root in (KEY, VALUE)}
        self._fields = {
            root: tuple(each for each in rules if each.path.root == root and each.path.segments)
            for root in (KEY, VALUE)
        }
        self._headers = tuple(each for each in rules if each.path.root == HEADERS)

    def covers(self, root: str) -> bool:
        """True if a rule replaces the key or the value, or a part of it."""
        return bool(self._whole[root] or self._fields[root])

    def has_fields(self, root: str) -> bool:
        """True if a rule replaces fields of the key or the value."""
        return bool(self._fields[root])

    def keeps_equality(self, root: str) -> bool:
        """True if equal keys or values are equal after masking, and others differ."""
        return not self._fields[root] and all(each.method == "hash" for each in self._whole[root])

    def part(self, root: str, data: bytes | None, decode: Callable[[bytes], Decoded]) -> MaskedPart:
        """The masked key or value, where `covers`. `decode` must not choose the decoder by the user's request."""
        content: object = data
        for rule in self._whole[root]:
            content = self._replacement(rule, content)
        if self._whole[root]:
            return _whole_part(str(content))
        if data is None:
            return MaskedPart(None, DECODED_NULL)
        decoded = decode(data)
        fields = decoded.value if decoded.failure is None else None
        for rule in self._fields[root]:
            fields = self._with_field(rule, fields, rule.path.segments)
        try:
            text = json_text(fields) if isinstance(fields, dict | list) else None
        except RecursionError:
            text = None
        if text is None:
            return _whole_part(NOT_FOUND)._replace(is_found=False)
        # Half of a surrogate pair becomes the escape sequence that JSON has for it.
        return MaskedPart(text.encode(errors="backslashreplace"), decoded._replace(value=fields))

    def headers(self, headers: Headers) -> Headers:
        """The headers, with the values of masked names replaced."""
        for rule in self._headers:
            (wanted,) = rule.path.segments
            headers = tuple(
                (name, self._replacement(rule, value).encode() if wanted in (None, name) else value)
                for name, value in headers
            )
        return headers

    def _with_field(self, rule: MaskRule, value: object, segments: Sequence[Segment]) -> object:
        """`value` with the content at the end of the path replaced; unchanged if a name or an index is missing."""
        if not segments:
            return self._replacement(rule, value)
        first, rest = segments[0], segments[1:]
        if isinstance(value, dict) and not isinstance(first, int):
            names = list(value) if first is None else [first] if first in value else []
            return {**value, **{name: self._with_field(rule, value[name], rest) for name in names}}
        if isinstance(value, list) and not isinstance(first, str):
            return [
                self._with_field(rule, each, rest) if first in (None, number) else each
                for number, each in enumerate(value)
            ]
        return None if value is None else HIDDEN

    def _replacement(self, rule: MaskRule, content: object) -> str:
        if rule.method == "hash":
            tagged = b"\1" + content if isinstance(content, bytes) else b"\0" + _encoded(json_text(content))
            message = b"\0".join((self.topic.encode(), str(rule.path).encode(), tagged))
            return "hash:" + hmac.digest(self._secret, message, "sha256").hex()[:HASH_DIGITS]
        if rule.method == "last":
            text = _text_of(content)
            if text is not None and len(text) >= 2 * rule.last:
                return _STARS + text[-rule.last :]
        return HIDDEN


def _whole_part(text: str) -> MaskedPart:
    return MaskedPart(_encoded(text), Decoded(text, MASKED, None))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _text_of(content: object) -> str | None:
    if isinstance(content, bytes):
        try:
            return content.decode()
        except UnicodeDecodeError:
            return None
    is_number = isinstance(content, int | Decimal) and not isinstance(content, bool)
    return str(content) if is_number or isinstance(content, str) else None
