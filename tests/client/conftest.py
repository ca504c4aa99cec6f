"""A scripted broker: a socket that sends the responses of the test, encoded by the protocol layer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.request_header import parse_request_header

from ottla.protocol.codec import read_message
from ottla.protocol.header import encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.registry import API, ApiKey

Answer = Any  # a response message, raw bytes of a whole frame, or None to close the connection


class ScriptedBroker:
    """Serves one connection after the other; `answers[api_key]` is a function of (version, request message)."""

    def __init__(self) -> None:
        self.answers: dict[int, Callable[[int, Any], Answer]] = {ApiKey.API_VERSIONS: self._api_versions}
        self.versions = {key: (spec.min_version, spec.max_version) for key, spec in API.items()}
        self.requests: list[tuple[int, int, Any]] = []
        self.errors: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while len(prefix := stream.read(4)) == 4:
                    frame = bytearray(stream.read(struct.unpack(">i", prefix)[0]))
                    answer = self._answer(frame)
                    if answer is None:
                        return
                    connection.sendall(answer)
            except ConnectionError:
                return
            except BaseException as error:
                self.errors.append(error)
                raise

    def _answer(self, frame: bytearray) -> bytes | None:
        header = parse_request_header(frame, 0, len(frame))
        spec = API[header.api_key]
        request = None
        if spec.supports(header.api_version):
            request, _ = read_message(spec.request, header.api_version, frame, header.body_start, len(frame))
        self.requests.append((header.api_key, header.api_version, request))
        answer = self.answers[header.api_key](header.api_version, request)
        if answer is None or isinstance(answer, bytes):
            return answer
        return encode_response(header.api_key, header.api_version, header.correlation_id, answer)

    def _api_versions(self, version: int, request: Any) -> Answer:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in self.versions.items()
            ]
        )


@pytest.fixture
def scripted():
    broker = ScriptedBroker()
    yield broker
    broker.close()
    assert not broker.errors


@pytest.fixture
def hangs_up():
    """Another broker, which closes every connection before its first response."""
    broker = ScriptedBroker()
    broker.answers[ApiKey.API_VERSIONS] = lambda version, request: None
    yield broker
    broker.close()
    assert not broker.errors
