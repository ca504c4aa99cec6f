"""Registries that are invalid, slow, or redirect; each is reported in one sentence that names the setting."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.schemas import registry as registries
from ottla.schemas.registry import SchemaRegistry, UnknownSchemaError

Answer = Callable[[socket.socket, bytes], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The URL of a server that calls `answer` with the head of each request."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    head = b""
                    while b"\r\n\r\n" not in head and (piece := connection.recv(1 << 16)):
                        head += piece
                    with suppress(OSError):  # the client closed the connection
                        answer(connection, head)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def saying(text: bytes) -> Answer:
    return lambda connection, _head: connection.sendall(text)


def body(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "registry:8081",
        "ftp://registry",
        "http://",
        "http://[::1",
        "http://host:port",
        "http://host:99999",
        "http://host:0",
        "http://a b",
        "http://h\u00f4te",
        "http://host/\n",
        "file:///etc/passwd",
    ],
)
def test_invalid_registry_url_is_refused(url: str) -> None:
    with pytest.raises(OperatorError, match="--schema-registry takes the URL of a schema registry such as http://"):
        SchemaRegistry(url)


def test_password_is_not_in_error() -> None:
    with pytest.raises(OperatorError) as caught:
        SchemaRegistry("http://user:secret@host:port")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        body(b"<html>hello</html>"),
        body(b"[" * 200_000),
        body(b"\xff\xfe"),
        body(b"[]"),
        body(b"7"),
        body(b'{"schema": "a", "references": [{"name": "a", "subject": "b", "version": 1e999}]}'),
        body(b'{"schema": "a", "references": 7}'),
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1_000 + b"\r\n{}",
        b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /schemas/ids/1\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=lambda answer: repr(answer[:60]),
)
def test_invalid_registry_responses_are_reported(answer: bytes) -> None:
    with answering(saying(answer)) as url, pytest.raises(OperatorError, match=url):
        SchemaRegistry(url).schema(1)


def test_slow_registry_response_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte arrives within the timeout of a read."""
    monkeypatch.setattr(registries, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(registries, "ATTEMPTS", 1)
    done = threading.Event()

    def drop(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not done.wait(0.02):
            connection.sendall(b" ")

    with answering(drop) as url:
        try:
            with pytest.raises(OperatorError, match="can't be reached: its answer did not end within"):
                SchemaRegistry(url).schema(1)
        finally:
            done.set()


def test_a_redirect_takes_the_password_to_no_other_host() -> None:
    heads = []

    def elsewhere(connection: socket.socket, head: bytes) -> None:
        heads.append(head)
        connection.sendall(body(b'{"schema": "text"}'))

    with answering(elsewhere) as other:
        redirect = b"HTTP/1.1 307 Moved\r\nLocation: %s/x\r\nContent-Length: 0\r\n\r\n" % other.encode()
        with answering(saying(redirect)) as url:
            found = SchemaRegistry(url.replace("http://", "http://reader:secret@")).schema(1)
    assert found.text == "text"
    assert b"GET /x" in heads[0]
    assert b"Authorization" not in heads[0]


MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%b"


def missing(text: bytes) -> bytes:
    return MISSING % (len(text), text)


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>no such page</html>", b'{"error_code": 404, "message": "HTTP 404 Not Found"}', b"[" * 100_000, b"[]"],
    ids=lambda text: repr(text[:20]),
)
def test_bare_404_under_wrong_path_is_not_unknown(text: bytes) -> None:
    with (
        answering(saying(missing(text))) as url,
        pytest.raises(OperatorError, match=r"not a schema registry.*ccompat"),
    ):
        SchemaRegistry(url).schema(1)


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_registry_unknown_codes_make_value_bad(code: int) -> None:
    caught = missing(b'{"error_code": %d, "message": "not found"}' % code)
    with answering(saying(caught)) as url, pytest.raises(UnknownSchemaError):
        SchemaRegistry(url).schema(1)


def test_registry_without_guids_makes_guid_values_bad() -> None:
    """It has no such path; one more request checks that it is a registry."""
    asked = []

    def answer(connection: socket.socket, head: bytes) -> None:
        asked.append(head.split()[1].partition(b"?")[0])
        connection.sendall(body(b'["AVRO"]') if asked[-1] == b"/schemas/types" else missing(b""))

    with answering(answer) as url:
        registry = SchemaRegistry(url)
        for guid in (UUID(int=1), UUID(int=2), UUID(int=1)):
            with pytest.raises(UnknownSchemaError):
                registry.schema(guid)
    assert asked == [b"/schemas/guids/%b" % str(UUID(int=1)).encode(), b"/schemas/types",
                     b"/schemas/guids/%b" % str(UUID(int=2)).encode()]  # fmt: skip


def test_id_above_maximum_is_not_requested() -> None:
    """A registry may answer it with a bad request, so that one record would fail every load."""
    with answering(saying(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")) as url:
        with pytest.raises(UnknownSchemaError):
            SchemaRegistry(url).schema(1 << 31)
        with pytest.raises(OperatorError):
            SchemaRegistry(url).schema((1 << 31) - 1)
