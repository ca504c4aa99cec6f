"""Addresses of listeners and of peers."""

from __future__ import annotations

import pytest

from ottla.common.platform.endpoint import canonical_host, format_address, peer_host


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:0:a00:1", "::ffff:0:a00:1"),
        ("::ffff:0:10.0.0.1", "::ffff:0:10.0.0.1"),  # not mapped, but translated
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", ""),
    ],
)
def test_peer_host_of_a_mapped_address_is_ipv4(address: str, host: str) -> None:
    assert peer_host(address) == host


@pytest.mark.parametrize(
    ("text", "host"),
    [("0:0:0:0:0:0:0:1", "::1"), ("::FFFF:a00:1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("example", "example")],
)
def test_canonical_host_has_one_form(text: str, host: str) -> None:
    assert canonical_host(text) == host


def test_format_address_brackets_ipv6() -> None:
    assert format_address("fe80::1%eth0", 1) == "[fe80::1%eth0]:1"
    assert format_address("host", 1) == "host:1"
