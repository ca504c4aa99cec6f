"""How a log call asks for rate limiting: `logger.warning("...", extra=RATE_LIMITED)`.

For what a client can cause as often as it likes. The filter in `ottla.app.logging` lets a few through for each place in
the code and counts the rest. Here, since every layer logs and only `app` configures logging.
"""

from __future__ import annotations

from types import MappingProxyType

AUDIT_LOGGER = "kafka.authorizer.logger"
"""Apache Kafka's name for what its authorizer tells: refusals and changes as INFO, what else is allowed as DEBUG."""

RATE_LIMITED = MappingProxyType({"rate_limited": True})
"""For `extra=` of a log call that a client can cause."""
