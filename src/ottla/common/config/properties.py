"""Java's `.properties` format, the format of `server.properties`.

Follows `java.util.Properties.load`: comments with # and !, keys that end at the first unescaped `=`, `:` or white
space, continued lines, backslash escapes. One difference: the file is read as UTF-8, since Java's ISO 8859-1 changes
every path with an accent into another path; `\\uXXXX` means the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file

MAX_FILE_BYTES = 1 << 20

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load_properties(path: str, option: str = "--config") -> dict[str, str]:
    """Return the settings in the file at `path`, from `option`; the last occurrence of a key applies.

    Raises OperatorError.
    """
    try:
        data = read_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise OperatorError(
            f"the config file {path} can't be read: {error.strerror}; name another one with {option}"
        ) from error
    return decode_properties(data, path)


def decode_properties(data: bytes, path: str) -> dict[str, str]:
    """Parse the bytes of a properties file. Raises OperatorError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OperatorError(
            f"line {line} of the config file {path} is not UTF-8 text; write the character as \\uXXXX"
        ) from error
    return parse_properties(text, path)


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Return the settings in `text`. Raises OperatorError with `source` and the line of a malformed escape."""
    settings: dict[str, str] = {}
    for number, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        try:
            settings[_unescape(raw_key)] = _unescape(raw_value)
        except ValueError as error:
            raise OperatorError(f"line {number} of the config file {source} is malformed: {error}") from error
    return settings


def value_text(value: object) -> str:
    """A value in properties format: `true` or `false` for a bool, everything else by `str`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def format_properties(settings: Mapping[str, str]) -> str:
    """Return the inverse of `parse_properties`: one line a setting, in the order of `settings`."""
    return "".join(f"{_escape(name, key=True)}={_escape(value, key=False)}\n" for name, value in settings.items())


def _escape(text: str, *, key: bool) -> str:
    """Escape characters that would end a key, begin a comment, or count as white space before a value."""
    names = {character: name for name, character in _ESCAPES.items()}
    special = _WHITE + "=:#!\\" if key else "\\"
    parts = []
    for position, character in enumerate(text):
        if character in names:
            parts.append("\\" + names[character])
        elif character in special or (character == " " and position == 0):
            parts.append("\\" + character)
        else:
            parts.append(character)
    return "".join(parts)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return lines without comments and blanks, continuations joined, with the number of their first line."""
    lines: list[tuple[int, str]] = []
    joined = ""
    first = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_WHITE)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = number
        joined += line
        if _ends_in_open_escape(joined):
            joined = joined[:-1]
            continue
        lines.append((first, joined))
        joined, first = "", 0
    if first:
        lines.append((first, joined))
    return lines


def _ends_in_open_escape(line: str) -> bool:
    """Return whether an odd number of backslashes ends the line: it continues on the next one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in _WHITE + "=:":
        position += 2 if line[position] == "\\" else 1
    key = line[:position]
    rest = line[position:].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    result = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            result.append(char)
            continue
        char = text[position]
        position += 1
        if char != "u":
            result.append(_ESCAPES.get(char, char))
            continue
        digits = text[position : position + 4]
        position += 4
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise ValueError(f"\\u{digits} is not \\u and four hexadecimal digits")
        result.append(chr(int(digits, 16)))
    # Characters beyond the first 65,536 are written as two escapes.
    return "".join(result).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
