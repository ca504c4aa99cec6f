"""An HTTPS token issuer, with a certificate of a CA that clients trust only if configured."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ottla.security.authority import Authority


class Issuer(ThreadingHTTPServer):
    """Speaks https with a certificate of `authority`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.authority = Authority.make("of the issuer", datetime.now(UTC))
        path = directory / "issuer.pem"
        path.write_bytes(self.authority.issue("issuer", ("127.0.0.1",), datetime.now(UTC)))
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(self.authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_port}"
        self.answer: Callable[[Answer], tuple[int, dict[str, str], bytes]] = lambda _: (404, {}, b"")
        """Status, headers and body for a request."""
        self.asked: list[tuple[str, str, bytes]] = []
        """Path, authorization and body of each request."""
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A client that does not trust us."""


class Answer(BaseHTTPRequestHandler):
    server: Issuer

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Authorization", ""), self.body))
        status, headers, answer = self.server.answer(self)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Nothing."""
