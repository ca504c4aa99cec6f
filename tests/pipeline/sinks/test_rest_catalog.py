"""REST catalogs that are down, slow, or something else: one-sentence errors within the timeout."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")

from ottla.pipeline.sinks import rest_catalog
from ottla.pipeline.sinks.open_table import open_table

CONFIG = b'{"defaults": {}, "overrides": {}}'


@contextmanager
def answering(*answers: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server that sends these responses in turn, repeating the last, and the request heads it received.

    None: it accepts connections and never answers.
    """
    heads: list[bytes] = []
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                answer = answers[min(len(heads), len(answers) - 1)]
                heads.append(connection.recv(1 << 16))
                held.append(connection)
                with suppress(OSError):
                    if answer is not None:
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", heads
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


def status(code: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (code, len(body)) + body


def failure(url: str) -> str:
    with pytest.raises(OperatorError) as failure_text:
        open_table("lake.clicks", catalog_url=url).exists()
    assert "\n" not in str(failure_text.value)
    return str(failure_text.value)


def test_closed_port_is_reported() -> None:
    assert "the catalog at 127.0.0.1:1 can't be reached: Connection refused" in failure("http://127.0.0.1:1")


@pytest.mark.parametrize("answers", [(None,), (status(200, CONFIG), None)], ids=["at first", "later"])
def test_silent_catalog_times_out(monkeypatch: pytest.MonkeyPatch, answers: tuple[bytes | None, ...]) -> None:
    monkeypatch.setattr(rest_catalog, "READ_TIMEOUT_S", 0.2)
    with answering(*answers) as (url, _):
        assert "did not answer in time" in failure(url)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(401, b""), "PYICEBERG_CATALOG__OTTLA__TOKEN"),
        (status(403, b"<html>no</html>"), "PYICEBERG_CATALOG__OTTLA__TOKEN"),
        (status(404, b"<html>no such page</html>" * 1_000), "404"),
        (status(200, b"<html>hello</html>"), "can't be looked up"),
        (status(200, b"[]"), "can't be looked up"),
        (status(503, b""), "can't be looked up"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "can't be reached"),
        (b"", "can't be reached"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_non_catalog_responses_are_reported(answer: bytes, expected: str) -> None:
    with answering(answer) as (url, _):
        failure_text = failure(url)
    assert expected in failure_text
    assert len(failure_text) < 700


def test_catalog_settings_of_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__OTTLA__TOKEN", "secret")
    with answering(status(503, b"")) as (url, heads):
        assert "secret" not in failure(url)
    assert b"Authorization: Bearer secret" in heads[0]
