"""Whether this installation can receive metrics of clients (KIP-714): the extra `telemetry` decodes them."""

from __future__ import annotations

from importlib.util import find_spec


def can_decode() -> bool:
    """Return whether the package `opentelemetry-proto` is installed; loads nothing of it but empty packages."""
    try:
        return find_spec("opentelemetry.proto.metrics") is not None
    except ModuleNotFoundError:
        return False
