"""How a source or a sink gets into a cluster that asks for more than a connection: `kafka.security.protocol`,
`kafka.ssl.*` and `kafka.sasl.*`, by the names and the meaning that they have in Spark's Kafka connector.

Files are read where the program runs; what they hold travels to the workers, which then need none.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.wire.security import PROPERTIES, ClientSecurity, parse_security
from ottla.common.errors import OperatorError

PROTOCOL = "security.protocol"


def option_security(kafka: Mapping[str, str]) -> ClientSecurity:
    """From options without `kafka.` before them. Raises OperatorError, also for those that say nothing."""
    named = {name: kafka[name] for name in sorted(PROPERTIES & kafka.keys())}
    idle = next((name for name in named if name != PROTOCOL), None)
    if idle is not None and named.get(PROTOCOL, "PLAINTEXT").upper() == "PLAINTEXT":
        raise OperatorError(
            f"the option kafka.{idle} says nothing without kafka.{PROTOCOL}: set that to SSL, SASL_SSL or "
            "SASL_PLAINTEXT, or leave it away"
        )
    return parse_security(named, "the options kafka.*")
