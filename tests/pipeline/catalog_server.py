"""A REST catalog of Iceberg for tests: pyiceberg's SQL catalog behind the requests that its REST client sends.

Errors have the codes of the specification (open-api/rest-catalog-open-api.yaml), and 400 for any that is not in CODES.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableRequest

CODES = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    CommitStateUnknownException: 500,
    ServiceUnavailableError: 503,
}
TABLE = re.compile(r"/v1/namespaces/([^/]+)/tables/([^/]+)")
TABLES = re.compile(r"/v1/namespaces/([^/]+)/tables")


@dataclass
class _Named:
    """The attributes that the catalog reads from a table in a commit."""

    identifier: tuple[str, ...]

    def name(self) -> tuple[str, ...]:
        return self.identifier


class CatalogServer:
    """Serves until it is stopped; its tables are in `folder`."""

    def __init__(self, folder: Path) -> None:
        properties = {"uri": f"sqlite:///{folder}/rest.db", "warehouse": f"file://{folder}/warehouse"}
        self.catalog = SqlCatalog("rest", **properties)
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    with outer._lock:
                        code, text = 200, outer.handle(self.command, self.path.partition("?")[0], body)
                except Exception as error:
                    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), 400)
                    response_error = {"message": str(error), "type": type(error).__name__, "code": code}
                    text = json.dumps({"error": response_error})
                content = text.encode() if self.command != "HEAD" else b""
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_HEAD = answer

            def log_message(self, *_: Any) -> None:
                """Suppresses log output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def handle(self, method: str, path: str, body: bytes) -> str:
        """Handle one request; raises the errors of the catalog."""
        if path == "/v1/config":
            return json.dumps({"defaults": {}, "overrides": {}})
        if path == "/v1/namespaces" and method == "POST":
            asked = json.loads(body)
            self.catalog.create_namespace(tuple(asked["namespace"]))
            return json.dumps({"namespace": asked["namespace"], "properties": {}})
        if (found := TABLES.fullmatch(path)) and method == "POST":
            unsaid = dict.fromkeys(("location", "partition-spec", "write-order"))
            return self._create(found[1], CreateTableRequest.model_validate({**unsaid, **json.loads(body)}))
        found = TABLE.fullmatch(path)
        if found is None:
            raise ValueError(f"{method} {path} is not served")
        identifier = (found[1], found[2])
        if method == "POST":
            commit = CommitTableRequest.model_validate_json(body)
            named: Any = _Named(identifier)
            return self.catalog.commit_table(named, commit.requirements, commit.updates).model_dump_json()
        return self._response(self.catalog.load_table(identifier))

    def _create(self, namespace: str, asked: CreateTableRequest) -> str:
        assert asked.stage_create, "tables are made by a transaction"
        identifier = (namespace, asked.name)
        if not self.catalog.namespace_exists(namespace):
            raise NoSuchNamespaceError(namespace)
        if self.catalog.table_exists(identifier):
            raise TableAlreadyExistsError(asked.name)
        staged = self.catalog.create_table_transaction(
            identifier, asked.table_schema, asked.location, properties=asked.properties
        )
        return self._response(staged._table)

    def _response(self, table: Any) -> str:
        return TableResponse(
            **{"metadata-location": table.metadata_location, "metadata": table.metadata}
        ).model_dump_json()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
