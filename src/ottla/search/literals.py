"""Byte strings that every match must contain, to rule out a whole decompressed batch without walking its records.

The result is a list of clauses. A record can match only if its bytes contain an alternative of each clause. Keys,
values and headers are contiguous in a batch, so a batch without any alternative of a clause contains no match.

Sound only where decoded values are in the bytes. JSON can write any character as an escape sequence, so an alternative
from a decoded field also holds for bytes with a backslash. It can write 42 as 42.0 or as 4.2e1: the digits are in the
bytes, or an exponent is. Decoders such as `hex` yield no clauses. Neither do negations, null and the replacement
character of invalid UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from ottla.common.platform.disk import Buffer
from ottla.search.byte_search import find_bytes, find_exponent
from ottla.search.subject import OpenDecoders
from ottla.search.syntax import (
    HEADERS,
    KEY,
    KEY_TEXT,
    NUMBERS,
    VALUE,
    VALUE_TEXT,
    And,
    Compare,
    Has,
    Match,
    Node,
    Not,
    OneOf,
    Or,
    Path,
    Quantifier,
    Scalar,
    TextTest,
    Word,
)

MAX_ALTERNATIVES = 64
MAX_EXPONENT = 64
"""Decimal exponent of the largest number whose digits are looked for: those of others would be many."""
_REPLACEMENT = "\ufffd"
BACKSLASH = b"\\"


class Clause(NamedTuple):
    """At least one of `alternatives` is in the bytes of a match, or a backslash if `or_escaped`, or a number with an
    exponent if `or_exponent`."""

    alternatives: tuple[bytes, ...]
    or_escaped: bool
    or_exponent: bool = False

    def rules_out(self, data: Buffer) -> bool:
        """True if no record in `data` can match."""
        end = len(data)
        for each in self.alternatives:
            if find_bytes(data, 0, end, each) >= 0:
                return False
        if self.or_exponent and find_exponent(data, 0, end) >= 0:
            return False
        return not (self.or_escaped and find_bytes(data, 0, end, BACKSLASH) >= 0)


class _Source(NamedTuple):
    """How the text of a root is written in the bytes."""

    is_verbatim: bool
    or_escaped: bool


_NONE = _Source(is_verbatim=False, or_escaped=False)


def required_clauses(node: Node | None, decoders: OpenDecoders) -> tuple[Clause, ...]:
    """The clauses of a filter; empty if nothing can be required.

    None for masked records: the filter sees other content than the batch has, and the number of ruled out records
    would reveal that content.
    """
    if node is None or decoders.mask is not None:
        return ()
    sources = {
        KEY: _Source(decoders.key.is_verbatim, or_escaped=True),
        VALUE: _Source(decoders.value.is_verbatim, or_escaped=True),
        KEY_TEXT: _Source(is_verbatim=True, or_escaped=False),
        VALUE_TEXT: _Source(is_verbatim=True, or_escaped=False),
        HEADERS: _Source(is_verbatim=True, or_escaped=False),
    }
    return tuple(dict.fromkeys(_clauses(node, {**sources, **dict.fromkeys(NUMBERS, _NONE)})))


def _clauses(node: Node, sources: dict[str, _Source]) -> list[Clause]:
    match node:
        case Word(text):
            return _clause((text,), _Source(is_verbatim=True, or_escaped=False))
        case And(parts):
            return [clause for part in parts for clause in _clauses(part, sources)]
        case Or(parts):
            return _joined([_clauses(part, sources) for part in parts])
        case Not():
            return []
        case Compare(path, "==", literal):
            return _names(path, sources) + _literal_clause((literal,), _source(path, sources))
        case Compare(path, _, _) | Has(path) | Match(path, _):
            return _names(path, sources)
        case TextTest(path, _, text):
            return _names(path, sources) + _clause((text,), _source(path, sources))
        case OneOf(path, literals):
            return _names(path, sources) + _literal_clause(literals, _source(path, sources))
        case Quantifier(path, name, body, is_all):
            found = _names(path, sources)
            return found if is_all else found + _clauses(body, {**sources, name: _source(path, sources)})


def _source(path: Path, sources: dict[str, _Source]) -> _Source:
    """Headers with more than a name are parsed as JSON."""
    found = sources[path.root]
    return found._replace(or_escaped=True) if path.root == HEADERS and len(path.segments) > 1 else found


def _names(path: Path, sources: dict[str, _Source]) -> list[Clause]:
    """The names in a path."""
    names = [each for each in path.segments if isinstance(each, str)]
    found: list[Clause] = []
    for number, name in enumerate(names):
        is_header_name = path.root == HEADERS and number == 0 and path.segments[0] == name
        found += _clause((name,), sources[path.root] if is_header_name else _source(path, sources))
    return found


def _clause(texts: Sequence[str], source: _Source) -> list[Clause]:
    is_usable = source.is_verbatim and texts and all(texts) and not any(_REPLACEMENT in text for text in texts)
    if not is_usable or len(texts) > MAX_ALTERNATIVES:
        return []
    return [Clause(tuple(text.encode() for text in texts), source.or_escaped)]


def _literal_clause(literals: Sequence[Scalar], source: _Source) -> list[Clause]:
    """One clause for values that equal a literal; none if one of them can be written in any form."""
    texts = [_written(literal) for literal in literals]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        return []
    has_text = any(isinstance(literal, str) for literal in literals)
    has_number = any(isinstance(literal, (int, Decimal)) and not isinstance(literal, bool) for literal in literals)
    found = _clause(known, source._replace(or_escaped=source.or_escaped and has_text))
    return [clause._replace(or_exponent=has_number) for clause in found]


def _written(literal: Scalar) -> str | None:
    """The bytes that a value has in common with all others that equal it, apart from exponents; None without any."""
    if literal is None or isinstance(literal, str):
        return literal
    if isinstance(literal, bool):
        return "true" if literal else "false"
    if literal == 0:
        return "0"  # also in -0.0
    if isinstance(literal, Decimal):
        if not -MAX_EXPONENT <= literal.adjusted() <= MAX_EXPONENT:
            return None
        text = format(literal, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(literal)


def _joined(branches: Sequence[Sequence[Clause]]) -> list[Clause]:
    """One clause with the most selective clause of each branch; none if a branch requires nothing."""
    if not all(branches):
        return []
    chosen = [max(clauses, key=lambda clause: min(map(len, clause.alternatives))) for clauses in branches]
    alternatives = tuple(dict.fromkeys(each for clause in chosen for each in clause.alternatives))
    if len(alternatives) > MAX_ALTERNATIVES:
        return []
    or_escaped, or_exponent = (any(clause[column] for clause in chosen) for column in (1, 2))
    return [Clause(alternatives, or_escaped, or_exponent)]
