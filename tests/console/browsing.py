"""A browser without a socket at the application of the console, and a clock and randomness of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlencode

from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import OperatorError
from ottla.console.application import cookie_name
from ottla.console.context import Services
from ottla.console.settings import Transport

SASL = Transport(ClientSecurity(), "SASL_PLAINTEXT", ("SCRAM-SHA-512", "PLAIN"))


class ManualClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def time_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


class CountingRng:
    """Different bytes at each call."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def random_bytes(self, size: int) -> bytes:
        return next(self._numbers).to_bytes(size, "big")

    def randrange(self, stop: int) -> int:
        return next(self._numbers) % stop


class NoCluster(AbstractContextManager[Any]):
    """A client that accepts the password `right` and every token, and has no other service."""

    def __init__(self, security: ClientSecurity) -> None:
        self.security = security

    def describe(self) -> None:
        login = self.security.login
        mechanism: Any = None if login is None else login("host")
        is_token = mechanism is not None and mechanism.mechanism == "OAUTHBEARER"
        if mechanism is not None and not is_token and not mechanism.first().endswith(b"\0right"):
            raise OperatorError("the broker rejected the login")

    def close(self) -> None:
        pass

    def __exit__(self, *details: object) -> None:
        pass


@dataclass
class Answer:
    """A response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Browser:
    """Sends requests with the cookie of the latest response."""

    app: Any
    services: Services
    cookie: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    answer: Answer = field(default_factory=lambda: Answer(0, [], b""))
    """The latest response, also while it arrives."""

    def send(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str | None] | None = None,
        leaves: Callable[[], bool] = lambda: False,
        answer: Answer | None = None,
    ) -> Answer:
        """The response, in `answer` while it arrives; the browser closes the connection when `leaves` is true."""
        sent: dict[str, str | None] = {"host": "127.0.0.1:8080", **self.headers}
        if self.cookie is not None:
            sent["cookie"] = f"{cookie_name(self.services.settings)}={self.cookie}"
        sent |= headers or {}
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value is not None],
            "client": ("127.0.0.1", 50_000),
        }
        answer = self.answer = Answer(0, [], b"") if answer is None else answer
        asyncio.run(_exchange(self.app, scope, body, leaves, answer))
        for name, value in answer.headers:
            if name == "set-cookie":
                self.cookie = value.partition(";")[0].partition("=")[2]
        return answer

    def get(self, target: str, **headers: str) -> Answer:
        return self.send("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, target: str, fields: Mapping[str, str], **headers: str) -> Answer:
        body = urlencode(fields).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(
            "POST", target, body=body, headers={"content-type": "application/x-www-form-urlencoded", **named}
        )

    @property
    def token(self) -> str:
        session = self.services.sessions.find(self.cookie)
        assert session is not None
        return session.token

    def sign_in(self, name: str = "ada", password: str = "right", **fields: str) -> Answer:
        self.get("/sign-in")
        return self.post(
            "/sign-in", {"token": self.token, "name": name, "password": password, "mechanism": "PLAIN", **fields}
        )


async def _exchange(app: Any, scope: dict[str, Any], body: bytes, leaves: Callable[[], bool], answer: Answer) -> None:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        while not leaves():
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(name.decode(), value.decode()) for name, value in message["headers"]]
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
