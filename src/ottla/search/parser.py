"""Recursive-descent parser of the query language; see docs/guides/search.md for the grammar.

Bounds: MAX_CHARS characters, MAX_NODES nodes (literals of a list count), MAX_DEPTH nested expressions. The parser
compiles regular expressions with RE2, so that an invalid one is reported at its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from ottla.search.regex import PatternRefused, compile_search
from ottla.search.scopes import BOUND_FORMS, ISOLATIONS, PARTITION_FORMS, parse_bound, parse_partitions, parse_time
from ottla.search.syntax import (
    HEADERS,
    KEY_TEXT,
    NUMBERS,
    ROOTS,
    VALUE_TEXT,
    And,
    Compare,
    Has,
    Match,
    Node,
    Not,
    OneOf,
    Operator,
    Or,
    Path,
    Quantifier,
    Query,
    QueryError,
    Scalar,
    Scopes,
    Segment,
    TextOperation,
    TextTest,
    Word,
)

MAX_CHARS = 8_192
MAX_NODES = 200
MAX_DEPTH = 32
MAX_LIMIT = 1_000_000_000

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s()\[\]{}\"'!&|<>=~,]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,9})?(?![\w.])", re.ASCII)
_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_SCOPE = re.compile(r"(from|until|partition|limit|isolation):(\S*)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_HEX = {"u": 4, "x": 2, "U": 8}

_OPERATORS: dict[str, Operator] = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEXT_OPERATIONS: dict[str, TextOperation] = {
    "contains": "contains",
    "startsWith": "startsWith",
    "endsWith": "endsWith",
}
_RECORD_FIELDS = {
    **{root: root for root in ROOTS},
    KEY_TEXT: KEY_TEXT,
    VALUE_TEXT: VALUE_TEXT,
    "timestampMs": "timestamp",
}
"""Fields of kafka-ui's `record`, by the root that has the same value."""

_A_TEST = 'a word, "a phrase", a path such as value.name, "!" or "("'
_AN_OPERATOR = "an operator such as == after the path (quote it to search for the word)"
_A_LITERAL = "text in quotes, a number, true, false or null"


def parse_query(text: str, now_ms: int) -> Query:
    """Parse a query; durations count back from `now_ms`. Raises QueryError."""
    if len(text) > MAX_CHARS:
        raise QueryError(MAX_CHARS, "the end of the query", f"{len(text)} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(error.start, "valid UTF-8", _shown(text[error.start])) from None
    return _Parser(text, now_ms).query()


class _Parser:
    """One parse: the text, the current position and the counters of both limits."""

    def __init__(self, text: str, now_ms: int) -> None:
        self._text = text
        self._now_ms = now_ms
        self._position = 0
        self._nodes = 0
        self._depth = 0
        self._variables: list[str] = []
        self._scope_parsers: dict[str, Callable[[Scopes, str, int], Scopes]] = {
            "from": self._from,
            "until": self._until,
            "partition": self._partition,
            "limit": self._limit,
            "isolation": self._isolation,
        }

    def query(self) -> Query:
        scopes = self._scopes()
        if self._at_end():
            return Query(scopes, None)
        found = self._or()
        if not self._at_end():
            raise self._error(f"{_A_TEST}, && or ||")
        return Query(scopes, found)

    # Scopes

    def _scopes(self) -> Scopes:
        scopes = Scopes()
        seen: set[str] = set()
        self._skip_space()
        while (match := _SCOPE.match(self._text, self._position)) is not None:
            name, value = match[1], match[2]
            if name in seen:
                raise QueryError(match.start(), f"one scope {name}:", "a second one")
            seen.add(name)
            scopes = self._scope_parsers[name](scopes, value, match.start(2))
            self._position = match.end()
            self._skip_space()
        return scopes

    def _from(self, scopes: Scopes, value: str, position: int) -> Scopes:
        found = parse_bound(value, self._now_ms)
        if found is None:
            raise QueryError(position, BOUND_FORMS, _shown(value))
        return replace(scopes, start=found)

    def _until(self, scopes: Scopes, value: str, position: int) -> Scopes:
        found = parse_bound(value, self._now_ms)
        if found is None:
            raise QueryError(position, BOUND_FORMS, _shown(value))
        return replace(scopes, until=found)

    def _partition(self, scopes: Scopes, value: str, position: int) -> Scopes:
        found = parse_partitions(value)
        if found is None:
            raise QueryError(position, PARTITION_FORMS, _shown(value))
        return replace(scopes, partitions=found)

    def _limit(self, scopes: Scopes, value: str, position: int) -> Scopes:
        found = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else 0
        if not 0 < found <= MAX_LIMIT:
            raise QueryError(position, f"a number from 1 to {MAX_LIMIT}", _shown(value))
        return replace(scopes, limit=found)

    def _isolation(self, scopes: Scopes, value: str, position: int) -> Scopes:
        if value not in ISOLATIONS:
            raise QueryError(position, " or ".join(ISOLATIONS), _shown(value))
        return replace(scopes, isolation=value)

    # Expressions

    def _or(self) -> Node:
        start = self._position
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise QueryError(start, f"at most {MAX_DEPTH} nested expressions", "one more")
        parts = [self._and()]
        while self._take("||"):
            parts.append(self._and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else self._counted(Or(tuple(parts)), start)

    def _and(self) -> Node:
        start = self._position
        parts = [self._not()]
        while True:
            if self._take("&&"):
                parts.append(self._not())
            elif self._at_end() or self._text.startswith((")", "||"), self._position):
                break
            else:
                parts.append(self._not())
        return parts[0] if len(parts) == 1 else self._counted(And(tuple(parts)), start)

    def _not(self) -> Node:
        self._skip_space()
        start = self._position
        is_negated = False
        while self._text.startswith("!", self._position) and not self._text.startswith("!=", self._position):
            is_negated = not is_negated
            self._position += 1
            self._skip_space()
        body = self._group() if self._text.startswith("(", self._position) else self._test()
        return self._counted(Not(body), start) if is_negated else body

    def _group(self) -> Node:
        self._position += 1
        found = self._or()
        self._require(")", '")", && or ||')
        return found

    def _test(self) -> Node:
        start = self._position
        if self._text.startswith(('"', "'"), start):
            return self._word(self._string(), start)
        name = _NAME.match(self._text, start)
        if name is not None and self._begins_path(name[0], name.end()):
            return self._path_test(start)
        if name is not None and name[0] == "has" and self._text.startswith("(", name.end()):
            self._position = name.end() + 1
            path = self._path()
            self._require(")", '")"')
            return self._counted(Has(path), start)
        match = _WORD.match(self._text, start)
        if match is None:
            raise self._error(_A_TEST)
        if _SCOPE.match(self._text, start):
            raise self._error("scopes before the filter (quote it to search for the text)")
        self._position = match.end()
        return self._word(match[0], start)

    def _word(self, text: str, start: int) -> Node:
        self._skip_space()
        if _OPERATOR.match(self._text, self._position) or self._text.startswith(("~", "="), self._position):
            self._position = start
            raise self._error(f"a path such as value.name before the operator: paths begin with {', '.join(ROOTS)}")
        return self._counted(Word(text), start)

    def _begins_path(self, name: str, end: int) -> bool:
        """True for a root that is not the beginning of a longer word, such as `key-1`."""
        if name == "record" and self._text.startswith(".", end):
            return True
        if name not in ROOTS and name not in self._variables:
            return False
        following = _WORD.match(self._text, end)
        return following is None or following[0].startswith(".")

    def _path_test(self, start: int) -> Node:
        path = self._path()
        method = self._method()
        if method is not None:
            return self._counted(self._called(path, method), start)
        self._skip_space()
        operator = _OPERATOR.match(self._text, self._position)
        if operator is not None:
            self._position = operator.end()
            return self._counted(Compare(path, _OPERATORS[operator[0]], self._scalar(path)), start)
        if self._take("~"):
            return self._counted(Match(path, self._pattern()), start)
        if (word := _WORD.match(self._text, self._position)) is not None and word[0] == "in":
            self._position = word.end()
            return self._counted(OneOf(path, self._list(path)), start)
        raise self._error(_AN_OPERATOR)

    # Paths

    def _path(self) -> Path:
        self._skip_space()
        name = self._name("a path: " + ", ".join((*ROOTS, *self._variables)))
        start, root = self._position - len(name), name
        if name == "record" and self._text.startswith(".", self._position):
            self._position += 1
            field = self._name("a field of record")
            if field not in _RECORD_FIELDS:
                self._position -= len(field)
                raise self._error(f"a field of record: {', '.join(_RECORD_FIELDS)}")
            root = _RECORD_FIELDS[field]
        elif name not in ROOTS and name not in self._variables:
            self._position = start
            raise self._error("a path: " + ", ".join((*ROOTS, *self._variables)))
        segments: list[Segment] = []
        while root not in NUMBERS and root not in (KEY_TEXT, VALUE_TEXT) and self._has_segment():
            segments.append(self._segment(is_header=root == HEADERS and not segments))
        return Path(root, tuple(segments))

    def _has_segment(self) -> bool:
        return self._text.startswith((".", "["), self._position) and self._method_name() is None

    def _segment(self, *, is_header: bool) -> Segment:
        if self._text.startswith(".", self._position):
            self._position += 1
            return self._name("a field name")
        self._position += 1
        self._skip_space()
        found: Segment
        index = _INDEX.match(self._text, self._position)
        if self._text.startswith(('"', "'"), self._position):
            found = self._string()
        elif self._take("*"):
            found = None
        elif index is not None and not is_header:
            self._position = index.end()
            found = int(index[0])
        else:
            raise self._error('a header name in quotes or "*"' if is_header else 'an index, a name in quotes or "*"')
        self._require("]", '"]"')
        return found

    def _method_name(self) -> re.Match[str] | None:
        """The name of a call such as `.contains(` at this position."""
        if not self._text.startswith(".", self._position):
            return None
        name = _NAME.match(self._text, self._position + 1)
        known = (*_TEXT_OPERATIONS, "matches", "exists", "all")
        return name if name and name[0] in known and self._text.startswith("(", name.end()) else None

    def _method(self) -> str | None:
        name = self._method_name()
        if name is None:
            return None
        self._position = name.end() + 1
        return name[0]

    def _called(self, path: Path, method: str) -> Node:
        node: Node
        self._skip_space()
        if method in _TEXT_OPERATIONS:
            node = TextTest(path, _TEXT_OPERATIONS[method], self._text_literal())
        elif method == "matches":
            node = Match(path, self._compiled(self._position, self._text_literal()))
        else:
            node = self._quantifier(path, is_all=method == "all")
        self._require(")", '")"')
        return node

    def _quantifier(self, path: Path, *, is_all: bool) -> Node:
        name = self._name("the name of a variable")
        if name in ROOTS or name in self._variables or name == "record":
            self._position -= len(name)
            raise self._error("a variable with a name of its own")
        self._require(",", '","')
        self._variables.append(name)
        body = self._or()
        self._variables.pop()
        return Quantifier(path, name, body, is_all)

    # Literals

    def _list(self, path: Path) -> tuple[Scalar, ...]:
        self._require("[", '"["')
        found = [self._counted_scalar(path)]
        while self._take(","):
            found.append(self._counted_scalar(path))
        self._require("]", '"," or "]"')
        return tuple(found)

    def _counted_scalar(self, path: Path) -> Scalar:
        self._count(self._position)
        return self._scalar(path)

    def _scalar(self, path: Path) -> Scalar:
        self._skip_space()
        start = self._position
        if self._text.startswith(('"', "'"), start):
            text = self._string()
            if path.root == "timestamp":
                return self._time(text, start)
            return text
        number = _NUMBER.match(self._text, start)
        if number is not None:
            self._position = number.end()
            return int(number[0]) if number[1] is None and number[2] is None else Decimal(number[0])
        word = _WORD.match(self._text, start)
        constants: dict[str, Scalar] = {"true": True, "false": False, "null": None}
        if word is None or word[0] not in constants:
            raise self._error(_A_LITERAL)
        self._position = word.end()
        return constants[word[0]]

    def _time(self, text: str, start: int) -> int:
        found = parse_time(text)
        if found is None:
            raise QueryError(start, "milliseconds or a time such as 2026-11-28T10:00:00Z", _shown(text))
        return found

    def _text_literal(self) -> str:
        if not self._text.startswith(('"', "'"), self._position):
            raise self._error("text in quotes")
        return self._string()

    def _string(self) -> str:
        quote, start = self._text[self._position], self._position
        pieces: list[str] = []
        position = start + 1
        while position < len(self._text):
            letter = self._text[position]
            if letter == quote:
                self._position = position + 1
                return "".join(pieces)
            if letter == "\\":
                piece, position = self._escape(position)
                pieces.append(piece)
            else:
                pieces.append(letter)
                position += 1
        raise QueryError(len(self._text), f"the closing {quote} of character {start + 1}", "the end of the query")

    def _escape(self, position: int) -> tuple[str, int]:
        """The character of the escape sequence at `position`, and the position after it."""
        letter = self._text[position + 1 : position + 2]
        if letter in _HEX:
            digits = self._text[position + 2 : position + 2 + _HEX[letter]]
            if re.fullmatch(f"[0-9A-Fa-f]{{{_HEX[letter]}}}", digits):
                code = int(digits, 16)
                if code < 0xD800 or 0xDFFF < code <= 0x10FFFF:
                    return chr(code), position + 2 + len(digits)
        elif letter and letter in _ESCAPES:
            return _ESCAPES[letter], position + 2
        raise QueryError(position, r"an escape sequence such as \n, \" or \u00e9", _shown("\\" + letter))

    def _pattern(self) -> str:
        self._skip_space()
        start = self._position
        if self._text.startswith(('"', "'"), start):
            return self._compiled(start, self._string())
        if not self._text.startswith("/", start):
            raise self._error("a regular expression between slashes")
        pieces: list[str] = []
        position = start + 1
        while position < len(self._text) and self._text[position] != "/":
            width = 2 if self._text[position] == "\\" else 1
            piece = self._text[position : position + width]
            pieces.append("/" if piece == "\\/" else piece)
            position += width
        if position >= len(self._text):
            raise QueryError(len(self._text), f"the closing / of character {start + 1}", "the end of the query")
        self._position = position + 1
        return self._compiled(start, "".join(pieces))

    def _compiled(self, start: int, pattern: str) -> str:
        try:
            compile_search(pattern)
        except PatternRefused as error:
            raise QueryError(start, f"a regular expression that RE2 accepts ({error})", _shown(pattern)) from None
        return pattern

    # Characters

    def _counted(self, node: Node, start: int) -> Node:
        self._count(start)
        return node

    def _count(self, start: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise QueryError(start, f"at most {MAX_NODES} tests, operators and literals of lists", "one more")

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        if match is not None:
            self._position = match.end()

    def _at_end(self) -> bool:
        self._skip_space()
        return self._position >= len(self._text)

    def _take(self, symbol: str) -> bool:
        self._skip_space()
        if not self._text.startswith(symbol, self._position):
            return False
        self._position += len(symbol)
        return True

    def _require(self, symbol: str, expected: str) -> None:
        if not self._take(symbol):
            raise self._error(expected)

    def _name(self, expected: str) -> str:
        match = _NAME.match(self._text, self._position)
        if match is None:
            raise self._error(expected)
        self._position = match.end()
        return match[0]

    def _error(self, expected: str) -> QueryError:
        rest = self._text[self._position :]
        word = _WORD.match(rest)
        found = "the end of the query" if not rest.strip() else _shown(word[0] if word else rest[:1])
        return QueryError(self._position, expected, found)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
