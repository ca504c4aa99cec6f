"""Escapes for control characters, so that untrusted text cannot control the terminal."""

from __future__ import annotations

import re

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters of ASCII and Latin-1 except tab and line feed, and characters that change the text direction."""


def escape_control_chars(text: str) -> str:
    r"""Return `text` with control characters as `\x1b` or `\u202e`; tabs and line feeds stay."""
    return _STEERING.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
