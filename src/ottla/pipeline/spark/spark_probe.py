"""Whether it is a Spark that listens at an address: asked by one frame that each kind of Spark answers at once.

Spark itself would wait a minute for a master that never answers, Connect ten for a server. A standalone master is asked
for a file that it does not serve, which it denies whoever asks and writes no line about; a server of Connect, which is
one of gRPC, for the settings of HTTP/2. One that speaks TLS is left to Spark, which has the certificates.
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
"""As long as a JVM that collects garbage on a busy machine may take."""

_HEADER_BYTES = 9
"""What a frame begins with, of both protocols: its length and its kind."""
_ANSWER_BYTES = 4096
"""More than a denial has: what is not read would be a reset connection to who said it."""


@dataclass(frozen=True, slots=True)
class _Question:
    frame: bytes
    kind_at: int
    """Where in the header of the answer its kind stands."""
    kind: int


def _file_request(path: bytes) -> bytes:
    """StreamRequest of Spark's network library: length of the frame, kind, a text."""
    return struct.pack(">qBi", 8 + 1 + 4 + len(path), 6, len(path)) + path


_QUESTIONS: Mapping[str, _Question] = {
    "spark": _Question(_file_request(b"/files/ottla"), kind_at=8, kind=8),  # StreamFailure
    "sc": _Question(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)), kind_at=3, kind=4),
}
"""By scheme. Of HTTP/2 (RFC 9113): the preface with empty SETTINGS, which are the first that the other side sends."""


def probe_spark_master(scheme: str, host: str, port: int, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> str | None:
    """Why what is at an address is no Spark of that scheme; None where it is, or speaks TLS."""
    question = _QUESTIONS[scheme]
    try:
        connection = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
    except OSError as error:
        return error.strerror or str(error)
    with connection:
        try:
            answer = _answer(connection, question.frame, answer_timeout_s)
        except TimeoutError:
            return f"what listens there gives no answer within {answer_timeout_s:g} s"
        except OSError:  # it hung up
            answer = b""
    if len(answer) >= _HEADER_BYTES and answer[question.kind_at] == question.kind:
        return None
    return None if _speaks_tls(host, port, answer_timeout_s) else "what listens there is no Spark"


def _answer(connection: socket.socket, frame: bytes, timeout_s: float) -> bytes:
    """What comes back, up to a header of a frame at least unless it was hung up before; raises OSError."""
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
    context.verify_mode = ssl.CERT_NONE  # nothing is told to it, nor taken from it
    try:
        with socket.create_connection((host, port), timeout_s) as connection, context.wrap_socket(connection):
            return True
    except OSError:
        return False
