"""Security options of a source or a sink: `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`, with the names
and the meaning that they have in Spark's Kafka connector.

Files are read where the program runs; their content is sent to the workers, which then need no files.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.wire.secured_properties import PROPERTIES
from ottla.client.wire.security import ClientSecurity, parse_security
from ottla.common.errors import OperatorError

PROTOCOL = "security.protocol"


def option_security(kafka: Mapping[str, str]) -> ClientSecurity:
    """Parse options without the prefix `kafka.`. Raises OperatorError, also for options without effect."""
    named = {name: kafka[name] for name in sorted(PROPERTIES & kafka.keys())}
    idle = next((name for name in named if name != PROTOCOL), None)
    if idle is not None and named.get(PROTOCOL, "PLAINTEXT").upper() == "PLAINTEXT":
        raise OperatorError(
            f"the option kafka.{idle} has no effect without kafka.{PROTOCOL}: set that to SSL, SASL_SSL or "
            "SASL_PLAINTEXT, or remove the option"
        )
    return parse_security(named, "the options kafka.*")
