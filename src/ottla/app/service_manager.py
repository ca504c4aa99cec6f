"""Notifications to systemd: a service is ready, or stops (`Type=notify`, sd_notify(3))."""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger(__name__)


def notify_service_manager(state: str) -> None:
    """Send `READY=1` or `STOPPING=1` to the socket in NOTIFY_SOCKET; without the variable nothing happens.

    A failure is logged, as the service itself works.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("systemd was not notified of %s through NOTIFY_SOCKET: %s", state, error.strerror or error)
