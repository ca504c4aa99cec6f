"""Who a node or a tool is in Kerberos, and where its tickets come from: the options of `Krb5LoginModule`, checked.

A keytab gives tickets for as long as it has the keys; those of a ticket cache are renewed by whoever keeps it. Where
both are named the keytab counts: whose tickets they are is the same.

Left out: passwords, which nobody is there to type, and the machine's own keytab where none is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_start

SERVICE_NAME = "sasl.kerberos.service.name"
_SERVICE = re.compile(r"[^/@\s]+")
_CACHE_TYPE = re.compile(r"[A-Z]+:")


class KerberosLogin(NamedTuple):
    """Checked, but for what the KDC thinks of it."""

    setting: str
    """That of the login module, for messages."""
    service: str
    """What the nodes that are come to are called: theirs are the principals service/host."""
    principal: str
    """Empty: that of the ticket cache."""
    keytab: str
    """Its path; empty where there is a ticket cache in its place."""
    ticket_cache: str
    """As MIT Kerberos names it; empty: the one of this user."""

    @property
    def source(self) -> str:
        """Where tickets come from, for messages."""
        if self.keytab:
            return f"{self.principal} by the keytab {self.keytab}"
        return f"the ticket cache {self.ticket_cache or 'of this user'}"


def keys_of_service(setting: str, options: Mapping[str, str], service: str) -> tuple[str, str]:
    """Principal and keytab of who is come to; `service` is what `SERVICE_NAME` says. Raises OperatorError."""
    if not _is_true(options, "useKeyTab") or not options.get("principal") or not options.get("keyTab"):
        raise OperatorError(
            f'{setting} has to have useKeyTab=true, keyTab="/path/of/a/keytab" and principal="service/host@REALM", '
            "whose keys clients' tickets are for"
        )
    principal = options["principal"]
    service = _service(setting, options, service)
    if service and service != principal.partition("/")[0]:
        raise OperatorError(
            f"{SERVICE_NAME} is {service}, but the principal in {setting} is {principal}: clients that follow it would "
            f"ask for tickets of {service}, so make them one"
        )
    return principal, options["keyTab"]


def login_of(setting: str, options: Mapping[str, str], service: str, what: str) -> KerberosLogin:
    """Who comes to others; `service` is what the setting `what` says of these. Raises OperatorError."""
    found = _service(setting, options, service)
    if not _SERVICE.fullmatch(found):
        raise OperatorError(
            f"{what} is {found or 'not set'}: set it to the service that brokers are, as kafka where their principals "
            "are kafka/host@REALM"
        )
    principal, keytab = options.get("principal", ""), options.get("keyTab", "")
    if not _is_true(options, "useKeyTab"):
        if not _is_true(options, "useTicketCache"):
            raise OperatorError(
                f'{setting} has to have useKeyTab=true with keyTab="/path/of/a/keytab" and principal="name@REALM", or '
                "useTicketCache=true, since nobody is asked for a password"
            )
        cache = options.get("ticketCache", "")
        return KerberosLogin(
            setting, found, principal, "", f"FILE:{cache}" if cache and not _CACHE_TYPE.match(cache) else cache
        )
    if not keytab:
        raise OperatorError(f'{setting} has useKeyTab=true and no keytab: add keyTab="/path/of/a/keytab"')
    if not principal:
        raise OperatorError(f'{setting} has a keytab and does not say whose keys to take: add principal="name@REALM"')
    try:
        read_start(keytab, 1)
    except OSError as error:
        raise OperatorError(f"{setting} names the keytab {keytab}, which can't be read: {error.strerror}") from error
    return KerberosLogin(setting, found, principal, keytab, "")


def _service(setting: str, options: Mapping[str, str], service: str) -> str:
    """As the login module says it, or the setting; Apache Kafka takes either."""
    named = options.get("serviceName", "")
    if named and service and named != service:
        raise OperatorError(f"{SERVICE_NAME} is {service}, but {setting} says serviceName={named}: make them one")
    return named or service


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
