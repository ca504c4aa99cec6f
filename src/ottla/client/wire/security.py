"""Security of client connections, from Kafka's client properties `security.protocol`, `ssl.*` and `sasl.*`.

`client.wire.secured_properties` reads those of connections with TLS or SASL, and is only imported for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.config.properties import load_properties
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    import ssl

    from ottla.client.wire.login import Login


class ClientSecurity(NamedTuple):
    """Security of a connection."""

    tls: ssl.SSLContext | None = None
    of_library: Mapping[str, Any] | None = {}
    """See `library`; None if librdkafka does not support the mechanism."""
    login: Login | None = None
    portable: Mapping[str, str] = {}
    """The original properties, with file contents instead of file names, so that another machine can use them."""

    @property
    def library(self) -> Mapping[str, Any]:
        """The settings for librdkafka, by its own names. Raises OperatorError if it does not support the mechanism."""
        if self.of_library is None:
            raise OperatorError(
                "sasl.mechanism=GSSAPI is not supported by librdkafka from PyPI: use "
                "another mechanism, read with ottla consume without --group or SimpleConsumer, or write with kcat or "
                "Apache Kafka's tools"
            )
        return self.of_library

    def __reduce__(self) -> tuple[Callable[[Mapping[str, str]], ClientSecurity], tuple[Mapping[str, str]]]:
        """Pickled for Spark's workers as properties: OpenSSL contexts cannot be pickled."""
        return _arrived, (self.portable,)

    @property
    def settings(self) -> Hashable:
        """All inputs, including secrets, for comparison."""
        return tuple(sorted(self.portable.items()))

    def __repr__(self) -> str:
        """A representation without secrets."""
        return f"<ClientSecurity {self.portable.get('security.protocol', 'PLAINTEXT')}>"


def _arrived(portable: Mapping[str, str]) -> ClientSecurity:
    return parse_security(portable, "the properties of the job")


PLAINTEXT = ClientSecurity()


def read_security(path: str, option: str = "--command-config") -> ClientSecurity:
    """Read a file of client properties, which `option` of the command selected. Raises OperatorError."""
    return parse_security(load_properties(path, option), path)


def parse_security(properties: Mapping[str, str], place: str) -> ClientSecurity:
    """Parse client properties; `place` is their source, for messages. Raises OperatorError."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    from ottla.client.wire.secured_properties import read_secured  # TLS and SASL are slow to load

    return ClientSecurity(*read_secured(protocol, properties, place))
