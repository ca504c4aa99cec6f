"""Position in the text of a query: symbols, names, text in quotes, and errors at this position."""

from __future__ import annotations

import re

from ottla.search.syntax import QueryError

WORD = re.compile(r"[^\s()\[\]{}\"'!&|<>=~,]+")
"""Characters of a bare word."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_SHOWN_CHARS = 40

_SPACE = re.compile(r"\s*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_HEX = {"u": 4, "x": 2, "U": 8}


class Cursor:
    """The text, and the position of the next character."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def skip_space(self) -> None:
        """Move to the next character that is not white space."""
        match = _SPACE.match(self.text, self.position)
        if match is not None:
            self.position = match.end()

    def at_end(self) -> bool:
        """True if only white space is left."""
        self.skip_space()
        return self.position >= len(self.text)

    def sees(self, symbols: str | tuple[str, ...], position: int | None = None) -> bool:
        """True if one of the symbols begins at the position."""
        return self.text.startswith(symbols, self.position if position is None else position)

    def take(self, symbol: str) -> bool:
        """Pass white space, and the symbol if it is next."""
        self.skip_space()
        if not self.sees(symbol):
            return False
        self.position += len(symbol)
        return True

    def require(self, symbol: str, expected: str) -> None:
        """Pass the symbol. Raises QueryError."""
        if not self.take(symbol):
            raise self.error(expected)

    def name(self, expected: str) -> str:
        """Pass a name. Raises QueryError."""
        match = NAME.match(self.text, self.position)
        if match is None:
            raise self.error(expected)
        self.position = match.end()
        return match[0]

    def string(self) -> str:
        """Pass text in quotes, and return it without them. Raises QueryError."""
        quote, start = self.text[self.position], self.position
        pieces: list[str] = []
        position = start + 1
        while position < len(self.text):
            letter = self.text[position]
            if letter == quote:
                self.position = position + 1
                return "".join(pieces)
            if letter == "\\":
                piece, position = self._escape(position)
                pieces.append(piece)
            else:
                pieces.append(letter)
                position += 1
        raise QueryError(len(self.text), f"the closing {quote} of character {start + 1}", "the end of the query")

    def error(self, expected: str) -> QueryError:
        """The error at the current position."""
        rest = self.text[self.position :]
        word = WORD.match(rest)
        found = "the end of the query" if not rest.strip() else shown(word[0] if word else rest[:1])
        return QueryError(self.position, expected, found)

    def _escape(self, position: int) -> tuple[str, int]:
        """The character of the escape sequence at `position`, and the position after it."""
        letter = self.text[position + 1 : position + 2]
        if letter in _HEX:
            digits = self.text[position + 2 : position + 2 + _HEX[letter]]
            if re.fullmatch(f"[0-9A-Fa-f]{{{_HEX[letter]}}}", digits):
                code = int(digits, 16)
                if code < 0xD800 or 0xDFFF < code <= 0x10FFFF:
                    return chr(code), position + 2 + len(digits)
        elif letter in _ESCAPES:
            return _ESCAPES[letter], position + 2
        raise QueryError(position, r"an escape sequence such as \n, \" or \u00e9", shown("\\" + letter))


def shown(text: str) -> str:
    """A part of a query for a message, cut."""
    return repr(text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "...")
