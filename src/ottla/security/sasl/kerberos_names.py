"""Mapping of Kerberos principals to user names: `sasl.kerberos.principal.to.local.rules`, in Apache Kafka's language.

A principal is `first@REALM` or `first/second@REALM`. Rules are tried in order, and the first match gives the name:
- DEFAULT maps principals of the default realm to `first`.
- `RULE:[n:format](pattern)s/from/to/gL` maps principals of n components. `format` builds a text from them ($0 is the
  realm, $1 and $2 the components), which `pattern` has to match as a whole; `from` is replaced by `to`, at every place
  with g; /L and /U convert the result to lower or upper case.

Invariant: a name contains neither / nor @ and is not empty, so that the rest of a realm can't turn a principal into
another user. Errors that Java would find at a login are reported at the start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.common.errors import OperatorError

SETTING = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"

_PRINCIPAL = re.compile(r"([^/@\\]+)(?:/([^/@\\]*))?@([^/@\\]+)")
"""The library writes a backslash before a character that would be read as a separator; rules can't distinguish it."""
_RULE = re.compile(
    r"RULE:\[(?P<count>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<fits>[^)]*)\))?"
    r"(?:s/(?P<wanted>[^/]*)/(?P<replacement>[^/]*)/(?P<everywhere>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_REPLACEMENT = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]+)|(?P<text>[^\\$]+)", re.DOTALL)

_Template = Sequence[str | int]
"""Alternating texts and numbers of components or groups."""


class _Substitution(NamedTuple):
    """`s/wanted/replacement/`."""

    wanted: re.Pattern[str]
    replacement: _Template
    everywhere: bool

    def apply(self, text: str) -> str:
        def replaced(found: re.Match[str]) -> str:
            return "".join(part if isinstance(part, str) else found.group(part) or "" for part in self.replacement)

        return self.wanted.sub(replaced, text, count=0 if self.everywhere else 1)


class _Rule(NamedTuple):
    """A rule other than DEFAULT."""

    size: int
    """Number of components of a matching principal."""
    format: _Template
    fits: re.Pattern[str] | None
    substitution: _Substitution | None
    case: str | None

    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        """The name; None if the rule does not match."""
        if len(components) != self.size:
            return None
        values = (realm, *components)
        text = "".join(part if isinstance(part, str) else values[part] for part in self.format)
        if self.fits is not None and self.fits.fullmatch(text) is None:
            return None
        if self.substitution is not None:
            text = self.substitution.apply(text)
        return {"L": text.lower(), "U": text.upper()}.get(self.case or "", text)


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """`default_realm` is that of krb5.conf, empty without one. Raises OperatorError for invalid rules."""
        if not rules:
            raise OperatorError(f"{SETTING} is empty and would reject every client: set it to {DEFAULT} or to rules")
        if DEFAULT in rules and not default_realm:
            raise OperatorError(
                f"{SETTING} has {DEFAULT}, which maps users of the default realm, but Kerberos has no default realm: "
                "set default_realm in krb5.conf"
            )
        self._default_realm = default_realm
        self._rules = [None if rule == DEFAULT else _parse(rule) for rule in rules]

    def name(self, principal: str) -> str:
        """The user name of `principal`. Raises ValueError if no rule matches."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise ValueError("the principal is not of the form first@REALM or first/second@REALM")
        first, second, realm = found.groups()
        components = (first,) if second is None else (first, second)
        for rule in self._rules:
            if rule is None:
                name = first if realm == self._default_realm else None
            else:
                name = rule.apply(realm, components)
            if name is not None:
                if not name or "/" in name or "@" in name:
                    raise ValueError(f"a rule of {SETTING} does not produce a simple name from the principal")
                return name
        raise ValueError(f"no rule of {SETTING} matches the principal")


def _parse(rule: str) -> _Rule:
    found = _RULE.fullmatch(rule)
    if found is None:
        raise _bad(rule, f"expected {DEFAULT} or the form RULE:[n:format](pattern)s/from/to/g/L")
    count = int(found["count"])
    substitution = None
    if found["wanted"] is not None:
        wanted = _pattern(rule, found["wanted"])
        substitution = _Substitution(
            wanted, _replacement(rule, found["replacement"], wanted.groups), found["everywhere"] is not None
        )
    fits = None if found["fits"] is None else _pattern(rule, found["fits"])
    return _Rule(count, _format(rule, found["format"], count), fits, substitution, found["case"])


def _pattern(rule: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.ASCII)  # like Java's character classes
    except re.error as error:
        raise _bad(rule, f"invalid pattern {text!r} ({error})") from error


def _format(rule: str, text: str, count: int) -> _Template:
    parts: list[str | int] = []
    position = 0
    for found in _PARAMETER.finditer(text):
        if not found.group(1) or int(found.group(1)) > count:
            raise _bad(rule, f"{found.group()} is not one of $0 to ${count}")
        parts += [text[position : found.start()], int(found.group(1))]
        position = found.end()
    return [*parts, text[position:]]


def _replacement(rule: str, text: str, groups: int) -> _Template:
    """Parse as Java does: a number after $ takes as many digits as form the number of an existing group."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        found = _REPLACEMENT.match(text, position)
        digits = found and found["group"]
        while digits and len(digits) > 1 and int(digits) > groups:
            digits = digits[:-1]
        if found is None or (digits and int(digits) > groups):
            raise _bad(rule, f"{text!r} names a missing group; write \\$ for the character")
        position = found.end()
        if digits:
            parts += [int(digits), found["group"][len(digits) :]]
        else:
            parts.append(found["literal"] or found["text"])
    return parts


def _bad(rule: str, why: str) -> OperatorError:
    return OperatorError(f"{SETTING} has an invalid rule {rule!r}: {why}")
