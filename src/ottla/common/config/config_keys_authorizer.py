"""Broker settings of the authorizer: names and defaults of Apache Kafka 4.4, texts our own."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.config.config_def import ConfigKey, ConfigType, ConfigValue, Importance, OneOf, UpdateMode

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class _Principals(NamedTuple):
    """Principals separated by semicolons."""

    def problem(self, value: ConfigValue) -> str | None:
        for principal in principals_of(str(value)):
            kind, colon, name = principal.partition(":")
            if not (kind and colon and name):
                return f"{principal!r} is not a principal of the form User:name"
        return None

    def describe(self) -> str:
        return "[principals of the form User:name, with a semicolon between them]"


def principals_of(text: str) -> tuple[str, ...]:
    """Return the principals in a setting."""
    return tuple(principal for each in text.split(";") if (principal := each.strip()))


AUTHORIZER_CONFIGS = [
    ConfigKey(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        "Authorizer for client requests, as the name of Apache Kafka's class, which reads ACLs from the metadata "
        "log. If empty, all requests are allowed.",
        OneOf(("", STANDARD_AUTHORIZER)),
        Importance.LOW,
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "super.users",
        ConfigType.STRING,
        "",
        "Principals that bypass ACLs, as User:name, separated by semicolons; they must include those of the "
        "cluster's nodes.",
        _Principals(),
        Importance.MEDIUM,
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        "Allow access to resources that no ACL matches. No effect without an authorizer.",
        None,
        Importance.LOW,
        UpdateMode.READ_ONLY,
    ),
]
