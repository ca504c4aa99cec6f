"""Recursive-descent parser of the query language; see docs/guides/search.md for the grammar.

Bounds: MAX_CHARS characters, MAX_NODES nodes (literals of a list count), MAX_DEPTH nested expressions. The parser
compiles regular expressions with RE2, so that an invalid one is reported at its position.
"""

from __future__ import annotations

import re
from decimal import Decimal

from ottla.search.cursor import NAME, WORD, Cursor, shown
from ottla.search.regex import PatternRefused, compile_search
from ottla.search.scopes import SCOPE, parse_time, read_scopes
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
    Segment,
    TextOperation,
    TextTest,
    Word,
)

MAX_CHARS = 8_192
MAX_NODES = 200
MAX_DEPTH = 32
MAX_DIGITS = 1_000
"""Characters of a number; Python converts at most 4,300."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,9})?(?![\w.])", re.ASCII)
_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")

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
        raise QueryError(error.start, "valid UTF-8", shown(text[error.start])) from None
    return _Parser(text, now_ms).query()


def parse_path(text: str) -> Path:
    """Parse a path such as `value.items[*].price`. Raises QueryError."""
    return _Parser(text, 0).whole_path()


class _Parser:
    """One parse: the text, the current position and the counters of both limits."""

    def __init__(self, text: str, now_ms: int) -> None:
        self._cursor = Cursor(text)
        self._now_ms = now_ms
        self._nodes = 0
        self._depth = 0
        self._variables: list[str] = []

    def query(self) -> Query:
        scopes = read_scopes(self._cursor, self._now_ms)
        if self._cursor.at_end():
            return Query(scopes, None)
        found = self._or()
        if not self._cursor.at_end():
            raise self._cursor.error(f"{_A_TEST}, && or ||")
        return Query(scopes, found)

    def whole_path(self) -> Path:
        path = self._path()
        if not self._cursor.at_end():
            raise self._cursor.error("the end of the path")
        return path

    # Expressions

    def _or(self) -> Node:
        start = self._cursor.position
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise QueryError(start, f"at most {MAX_DEPTH} nested expressions", "one more")
        parts = [self._and()]
        while self._cursor.take("||"):
            parts.append(self._and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else self._counted(Or(tuple(parts)), start)

    def _and(self) -> Node:
        start = self._cursor.position
        parts = [self._not()]
        while True:
            if self._cursor.take("&&"):
                parts.append(self._not())
            elif self._cursor.at_end() or self._cursor.sees((")", "||")):
                break
            else:
                parts.append(self._not())
        return parts[0] if len(parts) == 1 else self._counted(And(tuple(parts)), start)

    def _not(self) -> Node:
        self._cursor.skip_space()
        start = self._cursor.position
        is_negated = False
        while self._cursor.sees("!") and not self._cursor.sees("!="):
            is_negated = not is_negated
            self._cursor.position += 1
            self._cursor.skip_space()
        body = self._group() if self._cursor.sees("(") else self._test()
        return self._counted(Not(body), start) if is_negated else body

    def _group(self) -> Node:
        self._cursor.position += 1
        found = self._or()
        self._cursor.require(")", '")", && or ||')
        return found

    def _test(self) -> Node:
        start = self._cursor.position
        if self._cursor.sees(('"', "'"), start):
            return self._word(self._cursor.string(), start)
        name = NAME.match(self._cursor.text, start)
        if name is not None and self._begins_path(name[0], name.end()):
            return self._path_test(start)
        if name is not None and name[0] == "has" and self._cursor.sees("(", name.end()):
            self._cursor.position = name.end() + 1
            path = self._path()
            self._cursor.require(")", '")"')
            return self._counted(Has(path), start)
        match = WORD.match(self._cursor.text, start)
        if match is None:
            raise self._cursor.error(_A_TEST)
        if SCOPE.match(self._cursor.text, start):
            raise self._cursor.error("scopes before the filter (quote it to search for the text)")
        self._cursor.position = match.end()
        return self._word(match[0], start)

    def _word(self, text: str, start: int) -> Node:
        self._cursor.skip_space()
        if _OPERATOR.match(self._cursor.text, self._cursor.position) or self._cursor.sees(("~", "=")):
            self._cursor.position = start
            raise self._cursor.error(
                f"a path such as value.name before the operator: paths begin with {', '.join(ROOTS)}"
            )
        return self._counted(Word(text), start)

    def _begins_path(self, name: str, end: int) -> bool:
        """True for a root that is not the beginning of a longer word, such as `key-1`."""
        if name == "record" and self._cursor.sees(".", end):
            return True
        if name not in ROOTS and name not in self._variables:
            return False
        following = WORD.match(self._cursor.text, end)
        return following is None or following[0].startswith(".")

    def _path_test(self, start: int) -> Node:
        path = self._path()
        method = self._method()
        if method is not None:
            return self._counted(self._called(path, method), start)
        self._cursor.skip_space()
        operator = _OPERATOR.match(self._cursor.text, self._cursor.position)
        if operator is not None:
            self._cursor.position = operator.end()
            return self._counted(Compare(path, _OPERATORS[operator[0]], self._scalar(path)), start)
        if self._cursor.take("~"):
            return self._counted(Match(path, self._pattern()), start)
        if (word := WORD.match(self._cursor.text, self._cursor.position)) is not None and word[0] == "in":
            self._cursor.position = word.end()
            return self._counted(OneOf(path, self._list(path)), start)
        raise self._cursor.error(_AN_OPERATOR)

    # Paths

    def _path(self) -> Path:
        self._cursor.skip_space()
        name = self._cursor.name("a path: " + ", ".join((*ROOTS, *self._variables)))
        start, root = self._cursor.position - len(name), name
        if name == "record" and self._cursor.sees("."):
            self._cursor.position += 1
            field = self._cursor.name("a field of record")
            if field not in _RECORD_FIELDS:
                self._cursor.position -= len(field)
                raise self._cursor.error(f"a field of record: {', '.join(_RECORD_FIELDS)}")
            root = _RECORD_FIELDS[field]
        elif name not in ROOTS and name not in self._variables:
            self._cursor.position = start
            raise self._cursor.error("a path: " + ", ".join((*ROOTS, *self._variables)))
        segments: list[Segment] = []
        while root not in NUMBERS and root not in (KEY_TEXT, VALUE_TEXT) and self._has_segment():
            segments.append(self._segment(is_header=root == HEADERS and not segments))
        return Path(root, tuple(segments))

    def _has_segment(self) -> bool:
        return self._cursor.sees((".", "[")) and self._method_name() is None

    def _segment(self, *, is_header: bool) -> Segment:
        if self._cursor.sees("."):
            self._cursor.position += 1
            return self._cursor.name("a field name")
        self._cursor.position += 1
        self._cursor.skip_space()
        found: Segment
        index = _INDEX.match(self._cursor.text, self._cursor.position)
        if self._cursor.sees(('"', "'")):
            found = self._cursor.string()
        elif self._cursor.take("*"):
            found = None
        elif index is not None and not is_header:
            self._cursor.position = index.end()
            found = int(index[0])
        else:
            raise self._cursor.error(
                'a header name in quotes or "*"' if is_header else 'an index, a name in quotes or "*"'
            )
        self._cursor.require("]", '"]"')
        return found

    def _method_name(self) -> re.Match[str] | None:
        """The name of a call such as `.contains(` at this position."""
        if not self._cursor.sees("."):
            return None
        name = NAME.match(self._cursor.text, self._cursor.position + 1)
        known = (*_TEXT_OPERATIONS, "matches", "exists", "all")
        return name if name and name[0] in known and self._cursor.sees("(", name.end()) else None

    def _method(self) -> str | None:
        name = self._method_name()
        if name is None:
            return None
        self._cursor.position = name.end() + 1
        return name[0]

    def _called(self, path: Path, method: str) -> Node:
        node: Node
        self._cursor.skip_space()
        if method in _TEXT_OPERATIONS:
            node = TextTest(path, _TEXT_OPERATIONS[method], self._text_literal())
        elif method == "matches":
            node = Match(path, self._compiled(self._cursor.position, self._text_literal()))
        else:
            node = self._quantifier(path, is_all=method == "all")
        self._cursor.require(")", '")"')
        return node

    def _quantifier(self, path: Path, *, is_all: bool) -> Node:
        name = self._cursor.name("the name of a variable")
        if name in ROOTS or name in self._variables or name == "record":
            self._cursor.position -= len(name)
            raise self._cursor.error("a variable with a name of its own")
        self._cursor.require(",", '","')
        self._variables.append(name)
        body = self._or()
        self._variables.pop()
        return Quantifier(path, name, body, is_all)

    # Literals

    def _list(self, path: Path) -> tuple[Scalar, ...]:
        self._cursor.require("[", '"["')
        found = [self._counted_scalar(path)]
        while self._cursor.take(","):
            found.append(self._counted_scalar(path))
        self._cursor.require("]", '"," or "]"')
        return tuple(found)

    def _counted_scalar(self, path: Path) -> Scalar:
        self._count(self._cursor.position)
        return self._scalar(path)

    def _scalar(self, path: Path) -> Scalar:
        self._cursor.skip_space()
        start = self._cursor.position
        if self._cursor.sees(('"', "'"), start):
            text = self._cursor.string()
            if path.root == "timestamp":
                return self._time(text, start)
            return text
        number = _NUMBER.match(self._cursor.text, start)
        if number is not None:
            if len(number[0]) > MAX_DIGITS:
                raise QueryError(start, f"a number of at most {MAX_DIGITS} characters", shown(number[0]))
            self._cursor.position = number.end()
            return int(number[0]) if number[1] is None and number[2] is None else Decimal(number[0])
        word = WORD.match(self._cursor.text, start)
        constants: dict[str, Scalar] = {"true": True, "false": False, "null": None}
        if word is None or word[0] not in constants:
            raise self._cursor.error(_A_LITERAL)
        self._cursor.position = word.end()
        return constants[word[0]]

    def _time(self, text: str, start: int) -> int:
        found = parse_time(text)
        if found is None:
            raise QueryError(start, "milliseconds or a time such as 2026-11-28T10:00:00Z", shown(text))
        return found

    def _text_literal(self) -> str:
        if not self._cursor.sees(('"', "'")):
            raise self._cursor.error("text in quotes")
        return self._cursor.string()

    def _pattern(self) -> str:
        self._cursor.skip_space()
        start = self._cursor.position
        if self._cursor.sees(('"', "'"), start):
            return self._compiled(start, self._cursor.string())
        if not self._cursor.sees("/", start):
            raise self._cursor.error("a regular expression between slashes")
        pieces: list[str] = []
        position = start + 1
        while position < len(self._cursor.text) and self._cursor.text[position] != "/":
            width = 2 if self._cursor.text[position] == "\\" else 1
            piece = self._cursor.text[position : position + width]
            pieces.append("/" if piece == "\\/" else piece)
            position += width
        if position >= len(self._cursor.text):
            raise QueryError(len(self._cursor.text), f"the closing / of character {start + 1}", "the end of the query")
        self._cursor.position = position + 1
        return self._compiled(start, "".join(pieces))

    def _compiled(self, start: int, pattern: str) -> str:
        try:
            compile_search(pattern)
        except PatternRefused as error:
            raise QueryError(start, f"a regular expression that RE2 accepts ({error})", shown(pattern)) from None
        return pattern

    def _counted(self, node: Node, start: int) -> Node:
        self._count(start)
        return node

    def _count(self, start: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise QueryError(start, f"at most {MAX_NODES} tests, operators and literals of lists", "one more")
