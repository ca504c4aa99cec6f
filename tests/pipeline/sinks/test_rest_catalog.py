"""REST catalogs that are down, slow, or something else: one-sentence errors within the timeout.

A catalog that does not report the outcome of a commit may still carry it out, so the files of the load stay.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")

from pyiceberg.exceptions import (
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    ServiceUnavailableError,
    UnauthorizedError,
)

from ottla.pipeline.load.driver import rows_schema
from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.sinks import rest_catalog
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table, UnknownCommitError

from ..catalog_server import TABLE, CatalogServer
from .loads import commit, make_cluster, plan_load, topic_rows, write_files

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


class Catalog(CatalogServer):
    """Answers commits with `error`, and keeps their requests."""

    error: Exception | None = None

    def __init__(self, folder: Path) -> None:
        self.unanswered: list[tuple[str, str, bytes]] = []
        super().__init__(folder)

    def handle(self, method: str, path: str, body: bytes) -> str:
        if self.error is not None and method == "POST" and TABLE.fullmatch(path):
            self.unanswered.append((method, path, body))
            raise self.error
        return super().handle(method, path, body)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(tmp_path)
    yield catalog
    catalog.stop()


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return open_table("lake.clicks", catalog_url=catalog.url)


def load_with_failed_commit(catalog: Catalog, table: Table, error: Exception) -> None:
    cluster = make_cluster()
    plan = plan_load(cluster, table)
    table.ensure(rows_schema(table, None))
    with leased_files(table, "one"):
        files = write_files(cluster, table, plan, "one")
        catalog.error = error
        try:
            commit(table, plan, files, "one")
        finally:
            catalog.error = None


@pytest.mark.parametrize(
    "error", [CommitStateUnknownException("lost"), ServiceUnavailableError("busy")], ids=["500", "503"]
)
def test_files_of_an_unreported_commit_stay(catalog: Catalog, table: Table, error: Exception) -> None:
    """The catalog carries it out later: its table then refers to these files."""
    with pytest.raises(UnknownCommitError, match="did not report whether the load was committed"):
        load_with_failed_commit(catalog, table, error)
    catalog.handle(*catalog.unanswered[0])
    found = catalog.catalog.load_table("lake.clicks").scan().to_arrow()
    cluster = make_cluster()
    assert sorted(zip(*found.select(["partition", "offset"]).to_pydict().values(), strict=True)) == topic_rows(cluster)


@pytest.mark.parametrize(
    "error", [BadRequestError("x"), UnauthorizedError("x"), ForbiddenError("x")], ids=["400", "401", "403"]
)
def test_files_of_a_refused_commit_are_removed(
    catalog: Catalog, table: Table, error: Exception, tmp_path: Path
) -> None:
    with pytest.raises(OperatorError, match="could not be committed"):
        load_with_failed_commit(catalog, table, error)
    assert not list(tmp_path.rglob("part-*"))
    assert table.version() == 0
