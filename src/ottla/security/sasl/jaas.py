"""The one login module of a `sasl.jaas.config`: Kafka's form of JAAS (KIP-85), `Module required name="value" ...;`.

Values keep Kafka's quoting: in double or single quotes a backslash escapes, as Java's StreamTokenizer has it; without
quotes they end at white space or a semicolon. No message quotes any of it, since what stands there is secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.errors import OperatorError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
USER_PREFIX = "user_"

_FLAGS = ("required", "requisite", "sufficient", "optional")
_HEAD = re.compile(r"\s*([\w.$]+)\s+(\w+)(?=[\s;])")
_OPTION = re.compile(
    r"""\s*([\w.$-]+|"(?:\\.|[^"\\\n])*")\s*=\s*(?:"((?:\\.|[^"\\\n])*)"|'((?:\\.|[^'\\\n])*)'|([^\s;"']+))""",
    re.DOTALL,
)
_END = re.compile(r"\s*;\s*")
_QUOTED = r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
_COMMENT = re.compile(rf"({_QUOTED})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_SECTION = re.compile(rf"""\s*"?([\w.-]+)"?\s*\{{((?:{_QUOTED}|[^"'}}])*)\}}\s*;\s*""", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """A module and its options."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"

    def users(self) -> dict[str, str]:
        """Password by name, of the options `user_NAME`."""
        return {
            key[len(USER_PREFIX) :]: value
            for key, value in self.options.items()
            if key.startswith(USER_PREFIX) and len(key) > len(USER_PREFIX)
        }


def parse_jaas(setting: str, text: str) -> LoginModule:
    """The module of `text`, the value of `setting`. Raises OperatorError that names the setting alone."""
    head = _HEAD.match(text)
    if head is None or head.group(2).lower() not in _FLAGS:
        raise _malformed(setting)
    options: dict[str, str] = {}
    position = head.end()
    while (end := _END.match(text, position)) is None:
        match = _OPTION.match(text, position)
        if match is None:
            raise _malformed(setting)
        name, double, single, bare = match.groups()
        quoted = double if double is not None else single
        options[name.strip('"')] = bare if quoted is None else _ESCAPE.sub(_plain, quoted)
        position = match.end()
    if end.end() < len(text):
        raise _malformed(setting)
    return LoginModule(head.group(1), options)


def parse_jaas_file(what: str, text: str, section: str) -> LoginModule | None:
    """The module of the section of that name, of a file as Java's ConfigFile reads it; None without the section.

    Raises OperatorError that names `what` and the section alone.
    """
    rest, position = _COMMENT.sub(lambda found: found.group(1) or " ", text), 0
    while rest[position:].strip():
        found = _SECTION.match(rest, position)
        if found is None:
            raise OperatorError(
                f'{what} is no JAAS file, whose sections have the form NAME {{ MODULE required name="value"; }}; '
                "(what it holds is not shown, since that may be passwords)"
            )
        if found.group(1) == section:
            return parse_jaas(f"the section {section} of {what}", found.group(2))
        position = found.end()
    return None


def _plain(match: re.Match[str]) -> str:
    code: str = match.group(1)
    return chr(int(code, 8)) if code.isdigit() and code < "8" else _ESCAPED.get(code, code)


def _malformed(setting: str) -> OperatorError:
    return OperatorError(
        f'{setting} is no login module of the form MODULE required name="value" ...; with one module and a semicolon '
        "at its end (its value is not shown, since it may hold a password)"
    )
