"""A schema registry in this process: the responses of Confluent's REST API for readers, over real HTTP."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID


def guid(number: int) -> UUID:
    """The GUID of the schema with this id."""
    return UUID(int=(number << 64) + 7)


@dataclass
class RegistryServer:
    """`fails_with`: a status for every request; `password`: that of the user `reader`, if one is required."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    fails_with: int = 0
    password: str = ""

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: tuple[tuple[str, str], ...] = ()
    ) -> int:
        """`references`: (name, subject), each of version 1. Returns the id."""
        number = len(self.schemas) + 1
        described: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":  # the API omits the default
            described["schemaType"] = kind
        if references:
            described["references"] = [{"name": name, "subject": of, "version": 1} for name, of in references]
        self.schemas[number] = described
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
        expected = "Basic " + base64.b64encode(f"reader:{self.password}".encode()).decode()
        if self.password and authorization != expected:
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if self.fails_with:
            return self.fails_with, {"error_code": self.fails_with, "message": "Error"}
        if path.startswith("/elsewhere/"):
            return 307, {}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "guids"]:
            parts[1:] = ["ids", str(next((n for n in self.schemas if str(guid(n)) == parts[2]), 0))]
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        numbers = self.subjects.get(parts[1], [])
        if not numbers:
            return 404, {"error_code": 40401, "message": "Subject not found"}
        version = len(numbers) if parts[3] == "latest" else int(parts[3])
        number = numbers[version - 1]
        return 200, {"subject": parts[1], "id": number, "version": version, **self.schemas[number]}


@contextmanager
def registry_server(certificate: Path | None = None) -> Iterator[RegistryServer]:
    """With https if there is a certificate, with its key in the same file."""
    state = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            state.requests.append(path)
            state.logins.append(self.headers.get("Authorization"))
            status, body = state.answer(path, self.headers.get("Authorization"))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            if status == 307:
                self.send_header("Location", path.removeprefix("/elsewhere"))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
