"""Kerberos login of a node or tool: its identity and ticket source, from the options of `Krb5LoginModule`.

Tickets from a keytab can be renewed as long as it has the keys; those of a ticket cache are renewed outside of this
program. If both are configured the keytab is used: the principal is the same.

Not supported: passwords, since logins are not interactive, and the machine's default keytab.
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
    """A login with checked options; the KDC may still reject it."""

    setting: str
    """The setting of the login module, for messages."""
    service: str
    """Service name of the target nodes: their principals are service/host."""
    principal: str
    """Empty: the principal of the ticket cache."""
    keytab: str
    """Path of the keytab; empty to use a ticket cache."""
    ticket_cache: str
    """Name of the ticket cache in MIT Kerberos' form; empty: the cache of this user."""

    @property
    def source(self) -> str:
        """Description of the ticket source, for messages."""
        if self.keytab:
            return f"{self.principal} with the keytab {self.keytab}"
        return f"the ticket cache {self.ticket_cache or 'of this user'}"


def keys_of_service(setting: str, options: Mapping[str, str], service: str) -> tuple[str, str]:
    """Principal and keytab of an accepting node; `service` is the value of `SERVICE_NAME`. Raises OperatorError."""
    if not _is_true(options, "useKeyTab") or not options.get("principal") or not options.get("keyTab"):
        raise OperatorError(
            f'{setting} lacks options of the service keys: set useKeyTab=true, keyTab="/path/of/a/keytab" and '
            'principal="service/host@REALM"'
        )
    principal = options["principal"]
    service = _service(setting, options, service)
    if service and service != principal.partition("/")[0]:
        raise OperatorError(
            f"{SERVICE_NAME} is {service}, but the principal in {setting} is {principal}: clients would request "
            f"tickets of {service}, so set both to the same service"
        )
    return principal, options["keyTab"]


def login_of(setting: str, options: Mapping[str, str], service: str, what: str) -> KerberosLogin:
    """Login of a connecting node; `service` is the value of the setting `what`. Raises OperatorError."""
    found = _service(setting, options, service)
    if not _SERVICE.fullmatch(found):
        raise OperatorError(
            f"{what} is {found or 'not set'}: set it to the service name of the brokers, such as kafka for principals "
            "kafka/host@REALM"
        )
    principal, keytab = options.get("principal", ""), options.get("keyTab", "")
    if not _is_true(options, "useKeyTab"):
        if not _is_true(options, "useTicketCache"):
            raise OperatorError(
                f'{setting} has no ticket source: set useKeyTab=true with keyTab="/path/of/a/keytab" and '
                'principal="name@REALM", or useTicketCache=true; password prompts are not supported'
            )
        cache = options.get("ticketCache", "")
        return KerberosLogin(
            setting, found, principal, "", f"FILE:{cache}" if cache and not _CACHE_TYPE.match(cache) else cache
        )
    if not keytab:
        raise OperatorError(f'{setting} has useKeyTab=true but no keytab: add keyTab="/path/of/a/keytab"')
    if not principal:
        raise OperatorError(f'{setting} has a keytab but no principal: add principal="name@REALM"')
    try:
        read_start(keytab, 1)
    except OSError as error:
        raise OperatorError(f"{setting} names the keytab {keytab}, which can't be read: {error.strerror}") from error
    return KerberosLogin(setting, found, principal, keytab, "")


def _service(setting: str, options: Mapping[str, str], service: str) -> str:
    """The service name of the login module, or of the setting, as in Apache Kafka."""
    named = options.get("serviceName", "")
    if named and service and named != service:
        raise OperatorError(f"{SERVICE_NAME} is {service}, but {setting} has serviceName={named}: set both to the same")
    return named or service


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
