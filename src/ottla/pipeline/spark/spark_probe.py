"""Probe of an address for Spark, by one frame that each kind of Spark answers at once.

Spark itself would wait a minute for a master that never answers, Connect ten for a server. A standalone master is sent
a request for a file that it does not serve: it refuses that for every client and logs nothing. A server of Connect is
a gRPC server, and is sent the settings of HTTP/2. A server with TLS is left to Spark, which has the certificates.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 20.0
"""Seconds: a JVM that collects garbage on a busy machine may take as long."""

_HEADER_BYTES = 9
"""Length of a frame's header in both protocols: its length and its kind."""
_ANSWER_BYTES = 4096
"""More than the length of a refusal: closing with unread bytes would reset the connection."""


@dataclass(frozen=True, slots=True)
class _Question:
    frame: bytes
    kind_at: int
    """Position of the kind in the header of the response."""
    kind: int


def _file_request(path: bytes) -> bytes:
    """StreamRequest of Spark's network library: length of the frame, kind, a text."""
    return struct.pack(">qBi", 8 + 1 + 4 + len(path), 6, len(path)) + path


_QUESTIONS: Mapping[str, _Question] = {
    "spark": _Question(_file_request(b"/files/ottla"), kind_at=8, kind=8),  # StreamFailure
    "sc": _Question(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)), kind_at=3, kind=4),
}
"""By scheme. For HTTP/2 (RFC 9113): the preface with empty SETTINGS; the other side sends its SETTINGS first."""


def probe_spark_master(scheme: str, host: str, port: int, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> str | None:
    """Why the server at an address is not a Spark of that scheme; None if it is, or uses TLS."""
    question = _QUESTIONS[scheme]
    try:
        connection = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
    except OSError as error:
        return error.strerror or str(error)
    with connection:
        try:
            answer = _answer(connection, question.frame, answer_timeout_s)
        except TimeoutError:
            return f"the server there did not answer within {answer_timeout_s:g} s"
        except OSError:  # the server closed the connection
            answer = b""
    if len(answer) >= _HEADER_BYTES and answer[question.kind_at] == question.kind:
        return None
    return None if _speaks_tls(host, port, answer_timeout_s) else "the server there is not Spark"


def _answer(connection: socket.socket, frame: bytes, timeout_s: float) -> bytes:
    """The response, at least a frame header unless the connection was closed before; raises OSError."""
    deadline = time.monotonic() + timeout_s
    connection.settimeout(timeout_s)
    connection.sendall(frame)
    answer = b""
    while len(answer) < _HEADER_BYTES:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        received = connection.recv(_ANSWER_BYTES)
        if not received:
            break
        answer += received
    return answer


def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no data is sent or read
    try:
        with socket.create_connection((host, port), timeout_s) as connection, context.wrap_socket(connection):
            return True
    except OSError:
        return False
