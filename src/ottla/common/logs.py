"""Rate limiting of log calls: `logger.warning("...", extra=RATE_LIMITED)`.

For events that a client can cause without limit. The filter in `ottla.app.logging` passes a few for each place in the
code and counts the rest. The marker is here since every layer logs and only `app` configures logging.
"""

from __future__ import annotations

from types import MappingProxyType

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
"""Values of `--log-level` and `--log-format`."""
AUDIT_LOGGER = "kafka.authorizer.logger"
"""Apache Kafka's logger name for its authorizer: refusals and changes at INFO, other allowed requests at DEBUG."""

RATE_LIMITED = MappingProxyType({"rate_limited": True})
"""Value of `extra=` for a log call that a client can cause."""
