"""Ports that are chosen for brokers."""

from __future__ import annotations

from pathlib import Path

from ottla.app.ports import free_ports


def test_ports_are_free_and_below_those_of_connections() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    first_of_connections = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(found) < first_of_connections
