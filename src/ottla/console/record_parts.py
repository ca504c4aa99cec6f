"""How a record is shown: keys, values and headers as text, with the decoder and the reason of a failure."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import htpy as h
from htpy import Node

from ottla.console import formats
from ottla.console.mask_policy import Masking
from ottla.schemas.ids import ID_LENGTHS
from ottla.search.decoder_names import VERBATIM
from ottla.search.decoders import Decoded
from ottla.search.masks import MASKED
from ottla.search.scan import Hit
from ottla.search.values import json_text

JSON = "json"
AS_TEXT = Decoded(None, "text", None)
"""For bytes that are shown as text, such as values of headers."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:\s"]+')
_OPENING, _CLOSING = ("{", "["), ("}", "]")
MAX_INDENT = 40
MAX_RAW_BYTES = 1_024
RAW_ROW_BYTES = 16
MAX_HEADER_CHARS = 120
MAX_CELL_CHARS = 400
"""Characters of a key or a value in a list; the page of the record has more."""


def text_of(data: bytes | None, decoded: Decoded | None) -> str | None:
    """The decoded value as text, or the raw bytes with escapes; None for null."""
    if data is None:
        return None
    if decoded is not None and decoded.failure is None and decoded.decoder not in VERBATIM:
        value = decoded.value
        return json_text(value) if isinstance(value, dict | list) else str(value)
    if decoded is not None and decoded.failure is None and decoded.decoder == JSON:
        data = data[ID_LENGTHS.get(data[0], 0) :]  # JSON begins with neither byte of a schema id
    return data.decode(errors="backslashreplace")


def masking_note(masking: Masking) -> Node:
    """A sentence about masked parts of the records of a page."""
    if masking.mask is None and not masking.unmasked:
        return None
    masked = () if masking.mask is None else dict.fromkeys(str(rule.path) for rule in masking.mask.rules)
    return h.p(".hint")[
        f"Masked for you: {formats.visible(', '.join(masked))}. A filter sees the masked content. " if masked else None,
        f"Shown by your permission: {formats.visible(', '.join(masking.unmasked))}. The audit log has this read."
        if masking.unmasked
        else None,
    ]


def size_of(data: bytes | None, decoded: Decoded) -> str:
    """The size of a key or a value; not of one that is masked as a whole."""
    if data is None:
        return "null"
    return "masked" if decoded.decoder == MASKED else formats.size(len(data))


def decoder_of(decoded: Decoded) -> str:
    """The decoder, with the id of the schema."""
    return decoded.decoder + ("" if decoded.schema is None else f", schema {decoded.schema}")


class Cut(NamedTuple):
    """A key or a value in a list: its text, None for null, and remarks about it."""

    text: str | None
    size: str | None
    """The size, if the text was cut."""
    decoder: str | None
    """The decoder with its schema, or the reason of its failure."""


def cut_part(data: bytes | None, decoded: Decoded) -> Cut:
    """A key or a value with at most MAX_CELL_CHARS characters."""
    text = text_of(data, decoded)
    if text is None:
        return Cut(None, None, None)
    shown, left = formats.cut(text, MAX_CELL_CHARS)
    remark = None
    if decoded.failure is not None:
        remark = f"not {decoded.decoder}: {formats.visible(decoded.failure)}"
    elif decoded.schema is not None:
        remark = decoder_of(decoded)
    size = f"{size_of(data, decoded)} in all" if left else None
    return Cut(formats.visible(shown) + ("…" if left else ""), size, remark)


def cell(data: bytes | None, decoded: Decoded, download: str | None = None) -> Node:
    """A key or a value in a list, cut; `download` is the address of all of it."""
    found = cut_part(data, decoded)
    if found.text is None:
        return h.span(".null")["null"]
    return [
        h.div(".data", dir="auto")[found.text],
        h.small[found.size, [" ", h.a(href=download)["download"]] if download is not None else None]
        if found.size is not None
        else None,
        h.small[found.decoder] if found.decoder is not None else None,
    ]


def headers_cell(hit: Hit) -> Node:
    """The headers in a list; names may repeat."""
    if not hit.headers:
        return ""
    shown = [f"{name}: {text_of(value, None) if value is not None else 'null'}" for name, value in hit.headers[:5]]
    cuts = [formats.cut(each, MAX_HEADER_CHARS) for each in shown]
    more = len(hit.headers) - len(shown)
    return [h.div(".data")[formats.visible(text) + ("…" if left else "")] for text, left in cuts] + [
        h.small[f"and {more} more"] if more > 0 else None
    ]


def whole(data: bytes | None, decoded: Decoded) -> Node:
    """A key or a value on the page of its record: JSON with indents, anything else as it is."""
    text = readable(data, decoded)
    if text is None:
        return h.span(".null")["null"]
    return [
        h.pre(tabindex="0", dir="auto")[formats.visible(text.shown)],
        h.p[f"{formats.counted(text.left, 'character')} more of {size_of(data, decoded)}: download it."]
        if text.left
        else None,
        h.p(".error")[f"Not {decoded.decoder}: {formats.visible(decoded.failure)}"]
        if decoded.failure is not None
        else None,
    ]


def raw_bytes(data: bytes | None) -> Node:
    """The first bytes of a key or a value in hexadecimal, and as ASCII beside it."""
    if not data:
        return None
    lines = [
        f"{start:04x}  {row.hex(' '):<47}  {''.join(chr(each) if 32 <= each < 127 else '.' for each in row)}"
        for start in range(0, min(len(data), MAX_RAW_BYTES), RAW_ROW_BYTES)
        for row in [data[start : min(start + RAW_ROW_BYTES, MAX_RAW_BYTES)]]
    ]
    left = len(data) - MAX_RAW_BYTES
    return h.details[
        h.summary["Bytes"],
        h.pre(tabindex="0")["\n".join(lines)],
        h.p[f"{formats.counted(left, 'byte')} more: download it."] if left > 0 else None,
    ]


class Readable(NamedTuple):
    """Text of a key or a value, and the number of characters that were left out at its end."""

    shown: str
    left: int


def readable(data: bytes | None, decoded: Decoded) -> Readable | None:
    """The text of a key or a value: JSON with indents, anything else as it is, cut; None for null."""
    text = text_of(data, decoded)
    if text is None:
        return None
    shown, left = formats.cut(text)
    begins_json = decoded.failure is None and text[:1] in _OPENING
    if begins_json and (isinstance(decoded.value, dict | list) or _is_json(text)):
        shown = _pretty(shown)
    return Readable(shown, left)


def _is_json(text: str) -> bool:
    try:
        return len(text) <= formats.MAX_SHOWN_CHARS and json.loads(text) is not None
    except (ValueError, RecursionError):
        return False


def _pretty(text: str) -> str:
    """JSON or its beginning with indents; its names, strings and numbers stay exactly as they are."""
    pieces: list[str] = []
    depth = end = 0
    previous = ""
    for match in _TOKEN.finditer(text):
        if text[end : match.start()].strip():
            break  # the beginning of a string that was cut
        token, end = match[0], match.end()
        depth -= token in _CLOSING
        if (previous in _OPENING) != (token in _CLOSING) or previous == ",":
            pieces.append(_line(depth))
        pieces.append(": " if token == ":" else token)
        depth += token in _OPENING
        previous = token
    rest = text[end:].strip()
    return "".join(pieces) + (_line(depth) + rest if rest else "")


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, MAX_INDENT)
