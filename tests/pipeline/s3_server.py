"""An S3 server in a process of its own, which can kill a client in the middle of its requests: `s3_server.py`.

In the tests' own process some calls of Rust libraries, which hold Python's lock, would block forever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable
from typing import Any

ACCESS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_REGION": "us-east-1"}
BUCKET = "lake"
WRONG_KEY = "wrong"
"""An access key that the server rejects; it accepts every other."""
_KILL = "/-kill/"
_REFUSAL = (
    b"<Error><Code>InvalidAccessKeyId</Code>"
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)


class S3Server:
    """The server process; `stop` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def kill_at_put(self, pid: int, number: int) -> None:
        """Kill a client by SIGKILL after the put of that number (from 0), before the response."""
        urllib.request.urlopen(f"{self.url}{_KILL}{pid}/{number}").close()


class _Application:
    """moto, one request at a time: its conditional puts are not atomic on their own."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._victim, self._puts_left = 0, -1

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            if environ["PATH_INFO"].startswith(_KILL):
                self._victim, self._puts_left = map(int, environ["PATH_INFO"].removeprefix(_KILL).split("/"))
                start_response("204 No Content", [])
                return []
            if f"Credential={WRONG_KEY}/" in environ.get("HTTP_AUTHORIZATION", ""):
                start_response("403 Forbidden", [("Content-Type", "application/xml")])
                return [_REFUSAL]
            answer = list(self._app(environ, start_response))
            if environ["REQUEST_METHOD"] == "PUT":
                if self._puts_left == 0:
                    os.kill(self._victim, signal.SIGKILL)
                self._puts_left -= 1
            return answer


if __name__ == "__main__":
    from werkzeug.serving import make_server

    listening = make_server("127.0.0.1", 0, _Application(), threaded=True)
    print(listening.server_port, flush=True)
    listening.serve_forever()
