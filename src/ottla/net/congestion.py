"""Congestion control: disables BBR pacing for connections within this machine.

BBR, the default of some systems (`net.ipv4.tcp_congestion_control`), paces the packets of a connection with a timer.
Loopback has no bottleneck to protect, and the timers cost more than the sending: readers of 10 KiB records got
2.6 GB/s for 0.33 CPU s/GB, and 3.3 GB/s for 0.21 without. Once BBR has started, it keeps pacing under any other
algorithm. The listening socket therefore starts with another algorithm, and remote connections get the system's
algorithm back before the broker sends a byte.

Not covered: connections that the broker opens, which carry requests only.
"""

from __future__ import annotations

import socket

from ottla.common.platform.endpoint import peer_host

PACING = b"bbr"
"""Name prefixes of the algorithms that pace."""
UNPACED = b"reno"
"""Available on every Linux without privileges; without loss it performs as well as any other."""
_OPTION: int = getattr(socket, "TCP_CONGESTION", -1)
_NAME_BYTES = 16


def algorithm(connection: socket.socket) -> bytes:
    """The name of the connection's congestion control; empty where the system does not report it."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")
    except OSError:
        return b""


def begin_unpaced(listening: socket.socket) -> bytes | None:
    """Disable pacing for the connections that this socket will accept.

    Returns the system's algorithm, for `restore_congestion_control`; None if it does not pace or can't be replaced.
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
    """Restore the system's `pacing` algorithm of an accepted connection unless its peer is local. Raises OSError."""
    if not is_local(accepted, host):
        accepted.setsockopt(socket.IPPROTO_TCP, _OPTION, pacing)
