"""Connections within this machine do not pace what they send.

BBR, the default of some systems (`net.ipv4.tcp_congestion_control`), spreads the packets of a connection by a timer. On
loopback there is no bottleneck to spare, and the timers cost more than the sending: readers of 10 KiB records got
2.6 GB/s for 0.33 CPU s/GB, and 3.3 GB/s for 0.21 without. What BBR has begun keeps pacing under any other algorithm, so
the listening socket begins with another one, and connections from elsewhere get the system's back before the broker
sends a byte.

Left out: connections that the broker makes, which carry requests only.
"""

from __future__ import annotations

import socket

from ottla.common.platform.endpoint import peer_host

PACING = b"bbr"
"""How the names of the algorithms begin that pace by themselves."""
UNPACED = b"reno"
"""Every Linux has it and lets everyone choose it; without loss it is as good as any."""
_OPTION: int = getattr(socket, "TCP_CONGESTION", -1)
_NAME_BYTES = 16


def algorithm(connection: socket.socket) -> bytes:
    """The name of the connection's congestion control; empty where the system does not tell."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")
    except OSError:
        return b""


def begin_unpaced(listening: socket.socket) -> bytes | None:
    """Connections that this socket will accept begin without pacing.

    Returns the system's algorithm, for `restore_congestion_control`; None when that one does not pace or can't be left.
    """
    pacing = algorithm(listening)
    if not pacing.startswith(PACING):
        return None
    try:
        listening.setsockopt(socket.IPPROTO_TCP, _OPTION, UNPACED)
    except OSError:
        return None
    return pacing


def is_local(accepted: socket.socket, host: str) -> bool:
    """Whether the peer, at address `host`, is on this machine."""
    return host.startswith("127.") or host == "::1" or host == peer_host(accepted.getsockname()[0])


def restore_congestion_control(accepted: socket.socket, host: str, pacing: bytes) -> None:
    """Give an accepted connection the system's `pacing` back, unless its peer is on this machine. Raises OSError."""
    if not is_local(accepted, host):
        accepted.setsockopt(socket.IPPROTO_TCP, _OPTION, pacing)
