"""How a record is shown: keys, values and headers as text, with the decoder and the reason of a failure."""

from __future__ import annotations

import json
import re

import htpy as h
from htpy import Node

from ottla.console import formats
from ottla.search.decoder_names import VERBATIM
from ottla.search.decoders import Decoded
from ottla.search.scan import Hit

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:\s"]+')
_EMPTY = re.compile(r"([\[{])\s+([\]}])")
MAX_INDENT = 40
MAX_CELL_CHARS = 400
"""Characters of a key or a value in a list; the page of the record has more."""


def text_of(data: bytes | None, decoded: Decoded | None) -> str | None:
    """The decoded value as text, or the raw bytes with escapes; None for null."""
    if data is None:
        return None
    if decoded is not None and decoded.failure is None and decoded.decoder not in VERBATIM:
        value = decoded.value
        return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
    return data.decode(errors="backslashreplace")


def cell(data: bytes | None, decoded: Decoded) -> Node:
    """A key or a value in a list, cut."""
    text = text_of(data, decoded)
    if text is None:
        return h.span(".null")["null"]
    shown, left = formats.cut(text, MAX_CELL_CHARS)
    return [
        h.div(".data", dir="auto")[formats.visible(shown) + ("…" if left else "")],
        h.small[f"{formats.size(len(data or b''))} in all"] if left else None,
        h.small[f"not {decoded.decoder}: {formats.visible(decoded.failure)}"] if decoded.failure is not None else None,
    ]


def headers_cell(hit: Hit) -> Node:
    """The headers in a list; names may repeat."""
    if not hit.headers:
        return ""
    shown = [f"{name}: {text_of(value, None) if value is not None else 'null'}" for name, value in hit.headers[:5]]
    more = len(hit.headers) - len(shown)
    return [h.div(".data")[formats.visible(formats.cut(each, 120)[0])] for each in shown] + [
        h.small[f"and {more} more"] if more > 0 else None
    ]


def whole(data: bytes | None, decoded: Decoded) -> Node:
    """A key or a value on the page of its record: JSON with indents, anything else as it is."""
    text = text_of(data, decoded)
    if text is None:
        return h.span(".null")["null"]
    if decoded.failure is None:
        text = _pretty(text)
    shown, left = formats.cut(text)
    return [
        h.pre(tabindex="0", dir="auto")[formats.visible(shown)],
        h.p[f"{formats.counted(left, 'character')} more: download it."] if left else None,
        h.p(".error")[f"Not {decoded.decoder}: {formats.visible(decoded.failure)}"]
        if decoded.failure is not None
        else None,
    ]


def _pretty(text: str) -> str:
    """JSON with indents; its names, strings and numbers stay exactly as they are. Other text is unchanged."""
    if text[:1] not in ("{", "[") or len(text) > formats.MAX_SHOWN_CHARS:
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    pieces: list[str] = []
    depth = 0
    for token in _TOKEN.findall(text):
        if token in ("{", "["):
            depth += 1
            pieces.append(token + _line(depth))
        elif token in ("}", "]"):
            depth -= 1
            pieces.append(_line(depth) + token)
        else:
            pieces.append({",": "," + _line(depth), ":": ": "}.get(token, token))
    return _EMPTY.sub(r"\1\2", "".join(pieces))


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, MAX_INDENT)
