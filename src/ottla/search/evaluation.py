"""Evaluation of a filter on a record: the syntax tree becomes nested functions, once for each search.

Semantics: a path may lead to several values (`[*]`, headers of one name), and a test matches if one of them does. A
path that leads nowhere matches no test. Values of a different type than the literal match only `!=`; each such value is
counted. Parts of a conjunction run in the order of their cost: metadata, key, headers, value.

The bodies of `exists` and `all` see their variable; words in them still look at the whole record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ottla.search.decoders import Decoded, Undecodable, decode_text
from ottla.search.regex import Searcher, compile_search
from ottla.search.subject import Subject
from ottla.search.syntax import (
    HEADERS,
    KEY,
    KEY_TEXT,
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
    TextTest,
    Word,
)
from ottla.search.values import compare, follow, kind_of

Variables = Mapping[str, object]
Test = Callable[[Subject, Variables], bool]
Values = Callable[[Subject, Variables], Sequence[object]]
Filter = Callable[[Subject], bool]

NO_VARIABLES: Variables = {}
_COSTS = {KEY: 1, KEY_TEXT: 1, HEADERS: 2, VALUE_TEXT: 3, VALUE: 4, "schemaId": 3}
_NUMBERS: dict[str, Callable[[Subject], int | None]] = {
    "partition": lambda subject: subject.partition,
    "offset": lambda subject: subject.offset,
    "timestamp": lambda subject: subject.timestamp,
    "size": lambda subject: subject.size,
    "schemaId": lambda subject: subject.schema_id,
    "producerId": lambda subject: None if subject.producer_id < 0 else subject.producer_id,
}


def compile_filter(node: Node | None) -> Filter:
    """A function that returns whether a record matches; None matches all. It never raises for any record."""
    if node is None:
        return lambda subject: True
    test = _compiled(node)
    return lambda subject: test(subject, NO_VARIABLES)


def _compiled(node: Node) -> Test:
    match node:
        case Word(text):
            return _word(text.encode())
        case Not(body):
            negated = _compiled(body)
            return lambda subject, variables: not negated(subject, variables)
        case And(parts):
            return _all([_compiled(part) for part in sorted(parts, key=_cost)])
        case Or(parts):
            return _any([_compiled(part) for part in sorted(parts, key=_cost)])
        case Has(path):
            values = _values(path)
            is_whole = path.root in (KEY, VALUE) and not path.segments
            if is_whole:
                return lambda subject, variables: values(subject, variables)[0] is not None
            return lambda subject, variables: bool(values(subject, variables))
        case Compare() | OneOf():
            return _comparison(node)
        case TextTest() | Match():
            return _text_test(node)
        case Quantifier():
            return _quantified(node)


def _all(tests: Sequence[Test]) -> Test:
    def test(subject: Subject, variables: Variables) -> bool:
        for part in tests:  # noqa: SIM110 - no generator for each record
            if not part(subject, variables):
                return False
        return True

    return test


def _any(tests: Sequence[Test]) -> Test:
    def test(subject: Subject, variables: Variables) -> bool:
        for part in tests:  # noqa: SIM110
            if part(subject, variables):
                return True
        return False

    return test


def _cost(node: Node) -> int:
    match node:
        case Word():
            return 3
        case Not(body):
            return _cost(body)
        case And(parts) | Or(parts):
            return max(_cost(part) for part in parts)
        case Quantifier(path, _, body):
            return max(_COSTS.get(path.root, 0), _cost(body))
        case _:
            return _COSTS.get(node.path.root, 0)


def _word(word: bytes) -> Test:
    def test(subject: Subject, variables: Variables) -> bool:
        return (
            word in (subject.value or b"")
            or word in (subject.key or b"")
            or any(
                word in name.encode("utf-8", "surrogatepass") or word in (value or b"")
                for name, value in subject.headers
            )
        )

    return test


# Paths


def _values(path: Path) -> Values:
    """The values at the end of a path."""
    root, segments = path.root, path.segments
    if root in _NUMBERS:
        return _number(_NUMBERS[root])
    if root == HEADERS:
        return _header_values(path)
    if root in (KEY_TEXT, VALUE_TEXT):
        return lambda subject, variables: _texts(subject.key if root == KEY_TEXT else subject.value)
    if root == KEY:
        return lambda subject, variables: follow((subject.decoded_key.value,), segments)
    if root == VALUE:
        return lambda subject, variables: follow((subject.decoded_value.value,), segments)
    return lambda subject, variables: follow((variables[root],), segments)


def _number(read: Callable[[Subject], int | None]) -> Values:
    def values(subject: Subject, variables: Variables) -> Sequence[object]:
        found = read(subject)
        return () if found is None else (found,)

    return values


def _texts(data: bytes | None) -> Sequence[object]:
    return () if data is None else (data.decode("utf-8", "replace"),)


def _header_values(path: Path) -> Values:
    """Values of the headers of one name, of all headers for `[*]`; without a segment, the names."""
    if not path.segments:
        return lambda subject, variables: list(dict.fromkeys(name for name, _ in subject.headers))
    wanted, rest = path.segments[0], path.segments[1:]

    def values(subject: Subject, variables: Variables) -> Sequence[object]:
        found = [_header_value(value) for name, value in subject.headers if wanted is None or name == wanted]
        return follow(found, rest, parses_text=True) if rest else found

    return values


def _header_value(value: bytes | None) -> object:
    try:
        return None if value is None else decode_text(value)
    except Undecodable:
        return value


# Tests of paths


def _comparison(node: Compare | OneOf) -> Test:
    values = _values(node.path)
    comparison = node.operator if isinstance(node, Compare) else "=="
    literals = (node.literal,) if isinstance(node, Compare) else node.literals

    def test(subject: Subject, variables: Variables) -> bool:
        matches = False
        for value in values(subject, variables):
            is_comparable = False
            for literal in literals:
                result = compare(value, comparison, literal)
                if result is not None:
                    is_comparable = True
                    matches = matches or result
            if not is_comparable:
                _count(subject, node.path, value, f"compared with {kind_of(literals[0])}")
                matches = matches or comparison == "!="
        return matches

    return test


def _text_test(node: TextTest | Match) -> Test:
    """Tests of text; a key or value as a whole is its undecoded text if it did not decode to text."""
    path = node.path
    values = _values(path)
    matches = _operation(node)
    is_whole = path.root in (KEY, VALUE) and not path.segments

    def test(subject: Subject, variables: Variables) -> bool:
        found = False
        for value in _whole_text(subject, path.root) if is_whole else values(subject, variables):
            if isinstance(value, str):
                found = found or bool(matches(value))
            elif value is not None:
                _count(subject, path, value, "tested as text")
        return found

    return test


def _whole_text(subject: Subject, root: str) -> Sequence[object]:
    decoded: Decoded = subject.decoded_key if root == KEY else subject.decoded_value
    if isinstance(decoded.value, str):
        return (decoded.value,)
    return _texts(subject.key if root == KEY else subject.value)


def _operation(node: TextTest | Match) -> Callable[[str], object]:
    if isinstance(node, Match):
        search: Searcher = compile_search(node.pattern)
        return lambda text: search(text.encode("utf-8", "surrogatepass"))
    wanted = node.text
    if node.operation == "contains":
        return lambda text: wanted in text
    if node.operation == "startsWith":
        return lambda text: text.startswith(wanted)
    return lambda text: text.endswith(wanted)


def _quantified(node: Quantifier) -> Test:
    """The elements of a list, or the names of an object or of all headers."""
    values, body, name = _values(node.path), _compiled(node.body), node.name
    combine = all if node.is_all else any
    is_names = node.path == Path(HEADERS)

    def test(subject: Subject, variables: Variables) -> bool:
        found = values(subject, variables)
        found = (list(found),) if is_names else found
        matches = False
        for value in found:
            if isinstance(value, (list, dict)):
                matches = matches or combine(body(subject, {**variables, name: each}) for each in value)
            elif value is not None:
                _count(subject, node.path, value, "used as a list")
        return matches

    return test


def _count(subject: Subject, path: Path, value: object, use: str) -> None:
    subject.batch.tally.mismatches[f"{path} is {kind_of(value)}, {use}"] += 1
