"""Controller addresses of `controller.quorum.voters` and `controller.quorum.bootstrap.servers`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import BRACKETED_HOST

_HOST_AND_PORT = rf"(?:{BRACKETED_HOST}|([^\[\]/@]+)):([0-9]{{1,5}})"
_VOTER = rf"([0-9]{{1,10}})@{_HOST_AND_PORT}"
"""Compiled on first use: most single nodes configure no voters, and start faster."""
_MAX_NODE_ID = 2**31 - 1


class ConfiguredVoter(NamedTuple):
    """One entry of `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


def parse_voters(items: Iterable[str]) -> tuple[ConfiguredVoter, ...]:
    """Parse `ID@HOST:PORT` items. Raises OperatorError."""
    voters = []
    for item in items:
        match = re.fullmatch(_VOTER, item.strip())
        if match is None or int(match.group(1)) > _MAX_NODE_ID or not 0 < int(match.group(4)) <= 65535:
            raise OperatorError(f"controller.quorum.voters contains {item!r}, which is not of the form id@host:port")
        voters.append(ConfiguredVoter(int(match.group(1)), match.group(2) or match.group(3), int(match.group(4))))
    if len({voter.node_id for voter in voters}) < len(voters):
        raise OperatorError("controller.quorum.voters contains an id twice; list each voter once")
    return tuple(voters)


def parse_servers(items: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parse `HOST:PORT` items. Raises OperatorError."""
    servers = []
    for item in items:
        match = re.fullmatch(_HOST_AND_PORT, item.strip())
        if match is None or int(match.group(3)) > 65535:
            raise OperatorError(
                f"controller.quorum.bootstrap.servers contains {item!r}, which is not of the form host:port"
            )
        servers.append((match.group(1) or match.group(2), int(match.group(3))))
    return tuple(servers)
