"""Users' names out of Kerberos principals: `sasl.kerberos.principal.to.local.rules`, in Apache Kafka's language.

A principal is `first@REALM` or `first/second@REALM`. Rules are tried in order, and the first that fits names the user:
DEFAULT takes `first` in the default realm, `RULE:[n:format](pattern)s/from/to/gL` principals of n components. `format`
makes a text of them ($0 is the realm, $1 and $2 the components), which has to match `pattern` as a whole; `from` is
replaced by `to`, at every place with g; /L and /U make lower and upper case of what comes of it.

Invariant: a name has neither / nor @ and is not empty, so that no principal is taken for the user of another one by
what is left of its realm. What Java would find wrong when somebody comes in is refused at the start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.common.errors import OperatorError

SETTING = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"

_PRINCIPAL = re.compile(r"([^/@\\]+)(?:/([^/@\\]*))?@([^/@\\]+)")
"""A backslash is how the library writes a character that would be read as a separator: no rule could tell them."""
_RULE = re.compile(
    r"RULE:\[(?P<count>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<fits>[^)]*)\))?"
    r"(?:s/(?P<wanted>[^/]*)/(?P<replacement>[^/]*)/(?P<everywhere>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_REPLACEMENT = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]+)|(?P<text>[^\\$]+)", re.DOTALL)

_Template = Sequence[str | int]
"""Text, and numbers of what stands between."""


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
    """One that is not DEFAULT."""

    size: int
    """How many components a principal has that it may fit."""
    format: _Template
    fits: re.Pattern[str] | None
    substitution: _Substitution | None
    case: str | None

    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        """The name, None where the rule does not fit."""
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
        """`default_realm` is that of krb5.conf, empty where there is none. Raises OperatorError for what can't be."""
        if not rules:
            raise OperatorError(f"{SETTING} is empty, so that nobody could come in: set it to {DEFAULT} or to rules")
        if DEFAULT in rules and not default_realm:
            raise OperatorError(
                f"{SETTING} has {DEFAULT}, which is for users of the default realm, but Kerberos has none: set "
                "default_realm in krb5.conf"
            )
        self._default_realm = default_realm
        self._rules = [None if rule == DEFAULT else _parse(rule) for rule in rules]

    def name(self, principal: str) -> str:
        """The user that `principal` is. Raises ValueError where it is nobody."""
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
                    raise ValueError(f"a rule of {SETTING} leaves no simple name of the principal")
                return name
        raise ValueError(f"no rule of {SETTING} fits the principal")


def _parse(rule: str) -> _Rule:
    found = _RULE.fullmatch(rule)
    if found is None:
        raise _bad(rule, f"it is neither {DEFAULT} nor of the form RULE:[n:format](pattern)s/from/to/g/L")
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
        return re.compile(text, re.ASCII)  # as Java's classes of characters are
    except re.error as error:
        raise _bad(rule, f"the pattern {text!r} can't be read ({error})") from error


def _format(rule: str, text: str, count: int) -> _Template:
    parts: list[str | int] = []
    position = 0
    for found in _PARAMETER.finditer(text):
        if not found.group(1) or int(found.group(1)) > count:
            raise _bad(rule, f"{found.group()} is none of $0 to ${count}")
        parts += [text[position : found.start()], int(found.group(1))]
        position = found.end()
    return [*parts, text[position:]]


def _replacement(rule: str, text: str, groups: int) -> _Template:
    """As Java reads it: a number behind $ takes as many digits as make the number of a group that is there."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        found = _REPLACEMENT.match(text, position)
        digits = found and found["group"]
        while digits and len(digits) > 1 and int(digits) > groups:
            digits = digits[:-1]
        if found is None or (digits and int(digits) > groups):
            raise _bad(rule, f"{text!r} names a group that is not there; write \\$ for the character")
        position = found.end()
        if digits:
            parts += [int(digits), found["group"][len(digits) :]]
        else:
            parts.append(found["literal"] or found["text"])
    return parts


def _bad(rule: str, why: str) -> OperatorError:
    return OperatorError(f"{SETTING} has the rule {rule!r}, which can't be: {why}")
