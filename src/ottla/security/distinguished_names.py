"""Certificate subjects in Java's form (RFC 2253), and the mapping rules to user names (KIP-371).

Invariant: a subject always has the same text, and no two subjects share one: rules and ACLs are matched against it.
So values are escaped, and values that are not text are written as the hexadecimal bytes of their encoding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from cryptography.x509 import Name, NameAttribute

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS = {12: "utf-8", 19: "latin-1", 20: "latin-1", 22: "latin-1", 27: "latin-1", 28: "utf-32-be", 30: "utf-16-be"}
"""Encodings of the ASN.1 string types by tag."""
_ESCAPED = frozenset(',=+<>#;"\\')


def distinguished_name(subject: Name) -> str:
    """The text of a subject, the most specific part first."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(subject.rdns))


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    from cryptography.x509 import Name

    oid = attribute.oid.dotted_string
    pair = _content(_content(_content(Name([attribute]).public_bytes())))  # a name has a set of pairs
    value = pair[2 + pair[1] :]  # behind the OID, which has at most 63 bytes
    if oid not in _KEYWORDS or value[0] not in _TEXTS:
        return f"{_KEYWORDS.get(oid, oid)}=#{value.hex()}"
    text = _content(value).decode(_TEXTS[value[0]])
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in text)
    inner = escaped.strip(" ")
    lead = len(escaped) - len(escaped.lstrip(" "))
    trail = len(escaped) - len(inner) - lead
    return f"{_KEYWORDS[oid]}=" + "\\ " * lead + inner + "\\ " * trail


def _content(element: bytes) -> bytes:
    """`element` in DER without its tag and length."""
    return element[2 + (element[1] & 0x7F if element[1] & 0x80 else 0) :]


class _Rule(NamedTuple):
    """One of `ssl.principal.mapping.rules`; without a pattern DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        result = _REFERENCE.sub(lambda group: found.group(int(group.group(1))) or "", self.replacement)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


_REFERENCE = re.compile(r"\$([0-9])")
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)


class PrincipalMapping:
    """`ssl.principal.mapping.rules`: `RULE:pattern/replacement/` with optional L or U, or DEFAULT; comma-separated."""

    def __init__(self, rules: str) -> None:
        """Raises OperatorError for invalid rules."""
        self._rules: Sequence[_Rule] = _parse(rules)

    def name(self, distinguished: str) -> str:
        """The user name by the first rule that matches; raises ValueError if none does."""
        for rule in self._rules:
            name = rule.apply(distinguished)
            if name is not None:
                return name
        raise ValueError(f"no rule of ssl.principal.mapping.rules fits {distinguished}")


def _parse(text: str) -> list[_Rule]:
    rules = []
    position = 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        if found is None:
            raise OperatorError(
                f"can't parse ssl.principal.mapping.rules at {text[position : position + 40]!r}; rules are DEFAULT or "
                "RULE:pattern/replacement/ with an optional L or U, separated by commas"
            )
        position = found.end()
        if found.group(1):
            rules.append(_Rule(None))
            continue
        try:
            pattern = re.compile(found.group(2))
        except re.error as error:
            raise OperatorError(f"ssl.principal.mapping.rules has a bad pattern {found.group(2)!r}: {error}") from error
        replacement = re.sub(r"\\(.)", r"\1", found.group(3))
        if any(int(group) > pattern.groups for group in _REFERENCE.findall(replacement)):
            raise OperatorError(
                f"ssl.principal.mapping.rules: {found.group(0).strip()} names a group that the pattern lacks"
            )
        rules.append(_Rule(pattern, replacement, found.group(4)))
    return rules or [_Rule(None)]
