"""Parsing of `max.connections.per.ip.overrides`, connection limits of single addresses as `host:count,host:count`."""

from __future__ import annotations

import re

from ottla.common.config.config_def import ConfigValue
from ottla.common.errors import ErrorCode, KafkaError


class IpOverrides:
    """Valid values of that setting."""

    def problem(self, value: ConfigValue) -> str | None:
        """See `Validator`."""
        try:
            parse_ip_overrides(str(value))
        except KafkaError as error:
            return error.message
        return None

    def describe(self) -> str:
        """See `Validator`."""
        return "host:count,host:count,..."


def parse_ip_overrides(text: str) -> dict[str, int]:
    """Return counts by host, a name or an address, an IPv6 one with or without brackets. Raises KafkaError."""
    overrides = {}
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, count = item.rpartition(":")
        host, count = host.strip().removeprefix("[").removesuffix("]"), count.strip()
        if not host or not re.fullmatch("[0-9]{1,10}", count) or int(count) >= 2**31:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"contains {item!r}, which is not of the form host:count")
        overrides[host] = int(count)
    return overrides
