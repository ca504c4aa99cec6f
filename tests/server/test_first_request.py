"""Handlers are loaded for the first request of their API."""

from __future__ import annotations

import sys

import pytest

from ottla.common.errors import ProtocolError
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.registry import API, ApiKey
from ottla.server.handlers.admin.apis import ADMIN_APIS
from ottla.server.handlers.admin.context import AdminContext
from ottla.server.requests.api import ApiRow
from ottla.server.requests.dispatch import RequestDispatcher

from .harness import Server


def test_row_loads_its_api_once() -> None:
    (known,) = (row for row in ADMIN_APIS if row.key is ApiKey.LIST_CONFIG_RESOURCES)
    row: ApiRow[AdminContext] = ApiRow(known.key, known.module)
    api = row.api
    assert api is known.api
    assert api is row.api


def test_handler_that_cannot_be_loaded_closes_the_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a replacement of the installed package; other APIs are served, and the next request tries again."""
    module = "ottla.server.handlers.admin.list_config_resources"
    dispatcher = server.broker.dispatcher
    fresh = RequestDispatcher(
        server.broker.contexts.dispatcher,
        [
            served._replace(row=ApiRow(served.row.key, served.row.module))
            for served in dispatcher._served.values()
            if served.row.key is ApiKey.LIST_CONFIG_RESOURCES
        ],
    )
    server.broker._dispatcher = fresh
    request, version = ListConfigResourcesRequest(), API[ApiKey.LIST_CONFIG_RESOURCES].max_version
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, module, None)
        with pytest.raises(ProtocolError):
            fresh.may_be_forwarded(bytearray(b"\0\x4a" + bytes(8)))
        client = server.connect()
        client.send(request, version)
        assert client.channel.closed
    assert not server.connect().ask(request, version).error_code
