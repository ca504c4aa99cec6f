"""Plain sockets: requests byte for byte as a test wants them."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.registry import ApiKey

TIMEOUT_S = 20.0
_SIZE = struct.Struct(">i")


class Wire:
    """One connection to a broker on this machine."""

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S, client_id: str = "test") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._client_id = client_id

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        """One request; its size prefix is added. A peer that hung up is not an error here."""
        self.send_raw(_SIZE.pack(len(request)) + request)

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> bytes | None:
        """One response without its size prefix; None when the broker closed the connection."""
        size = self._exactly(4)
        return None if size is None else self._exactly(_SIZE.unpack(size)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)

    def closed_by_broker(self) -> bool:
        """Wait for the end of the connection; False when something else came. Raises TimeoutError."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, api_key: ApiKey, version: int, message: object) -> Any:
        """A valid request and its decoded response; raises ConnectionError when the broker closes instead."""
        self._correlation_id += 1
        self.send_raw(encode_request(api_key, version, self._correlation_id, self._client_id, message))
        frame = self.receive()
        if frame is None:
            raise ConnectionError(f"the broker closed the connection on {api_key.name} v{version}")
        correlation_id, response = decode_response(api_key, version, frame)
        if correlation_id != self._correlation_id:
            raise AssertionError(f"answer {correlation_id} to request {self._correlation_id}")
        return response
