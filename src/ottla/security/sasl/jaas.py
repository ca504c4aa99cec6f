"""Parser of `sasl.jaas.config`: one login module in Kafka's JAAS form (KIP-85), `Module required name="value" ...;`.

Values have Kafka's quoting: in double or single quotes a backslash escapes, as in Java's StreamTokenizer; without
quotes they end at white space or a semicolon. Messages never quote the text, since it contains secrets.
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
    """The module in `text`, the value of `setting`. Raises OperatorError that names only the setting."""
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
    """The module of a section in a file as Java's ConfigFile reads it; None without the section.

    Raises OperatorError that names only `what` and the section.
    """
    rest, position = _COMMENT.sub(lambda found: found.group(1) or " ", text), 0
    while rest[position:].strip():
        found = _SECTION.match(rest, position)
        if found is None:
            raise OperatorError(
                f'{what} is not a JAAS file; write sections as NAME {{ MODULE required name="value"; }}; '
                "(its content is not shown, since it may contain passwords)"
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
        f'{setting} is not a login module; write MODULE required name="value" ...; with one module and a semicolon '
        "at its end (its value is not shown, since it may contain a password)"
    )
