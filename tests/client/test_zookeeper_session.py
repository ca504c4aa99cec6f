"""ZooKeeper sessions without a server; tests with a real server are in `compat/java/`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.zookeeper.zookeeper_session import KazooSession
from ottla.common.errors import OperatorError


class NoPool:
    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        raise AssertionError("nothing was started")


def made(servers: str) -> KazooSession:
    return KazooSession(servers, 6000, post=lambda *call: None, pool=NoPool())


def test_missing_package_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(OperatorError, match=r"zookeeper\.connect needs .* pip install 'ottla\[zookeeper\]'$"):
        made("localhost:2181")


@pytest.mark.parametrize("servers", ["", "h:port", "h:1,,i:2", "h:99999"])
def test_invalid_servers_are_rejected(servers: str) -> None:
    with pytest.raises(OperatorError, match=r"^zookeeper\.connect .* contains no servers: "):
        made(servers)
