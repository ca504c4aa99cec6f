"""An HTTP server with the metrics of a broker, as text that a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ottla.metrics.series import label_text


class MetricsServer(ThreadingHTTPServer):
    """Answers every request with `text`, or redirects to `target`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.text = ""
        self.target: str | None = None
        self.tokens: list[str | None] = []
        """The `Authorization` header of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/metrics"


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer

    def do_GET(self) -> None:
        self.server.tokens.append(self.headers.get("authorization"))
        body = self.server.text.encode()
        self.send_response(200 if self.server.target is None else 302)
        if self.server.target is not None:
            self.send_header("location", self.server.target)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not on standard error."""


@contextmanager
def serving() -> Iterator[MetricsServer]:
    with MetricsServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def info(client_id: str, instance_id: str, **labels: str) -> str:
    """The line of a client."""
    pairs = (("client_id", client_id), ("client_instance_id", instance_id), *labels.items())
    return f"ottla_client_info{label_text(pairs)} 1\n"


def sample(name: str, client_id: str, instance_id: str, value: float, labels: Mapping[str, str]) -> str:
    """The line of a value that a client pushed."""
    pairs = (("client_id", client_id), ("client_instance_id", instance_id), *labels.items())
    return f"kafka_client_{name}{label_text(pairs)} {value:g}\n"
