"""Checks of each request before any page runs, and the headers of each response.

The rules answer known holes of other consoles: a page of another site that sends requests (Host, Origin,
Sec-Fetch-Site), content of records that runs as a script (Content-Security-Policy), and large bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.context import PageError, Parameters

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
MAX_BODY_BYTES = 2 * 1024 * 1024
"""Bound of a form: a record of 1 MB and its escapes."""
MAX_FIELDS = 1_000
MAX_QUERY_CHARS = 16 * 1024
FORM = "application/x-www-form-urlencoded"
SAFE_METHODS = ("GET", "HEAD")


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, origins: frozenset[str], base_path: str, *, is_secure: bool) -> None:
        self._app = app
        self._origins = origins
        self._hosts = frozenset(urlsplit(each).netloc for each in origins)
        self._base_path = base_path
        self._headers = dict(SECURITY_HEADERS)
        if is_secure:
            self._headers["strict-transport-security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = {**self._headers, "cache-control": "no-store"}
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in added.items() if k.encode() not in present),
                ]
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope), len(scope["query_string"]))
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        path = scope["path"]
        if self._base_path and (path == self._base_path or path.startswith(self._base_path + "/")):
            scope = {**scope, "path": path[len(self._base_path) :] or "/", "raw_path": None}
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers, query_chars: int) -> Response | None:
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return PlainTextResponse(
                "This address is not one of the console's: open one of "
                f"{', '.join(sorted(self._origins))}, or set --public-url.\n",
                421,
            )
        if query_chars > MAX_QUERY_CHARS:
            return PlainTextResponse("The address is too long.\n", 414)
        return self._cross_site_refusal(method, headers)

    def _cross_site_refusal(self, method: str, headers: Mapping[str, str]) -> Response | None:
        """Other sites may only link to a page: neither send forms nor load anything."""
        refused = PlainTextResponse("Requests from other sites are refused.\n", 403)
        site = headers.get("sec-fetch-site")
        if method in SAFE_METHODS:
            is_navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
            return refused if site not in (None, "same-origin", "none") and not is_navigation else None
        origin = headers.get("origin")
        if site not in (None, "same-origin") or (origin is not None and origin.lower() not in self._origins):
            return refused
        return None


async def read_form(headers: Mapping[str, str], receive: Receive) -> Parameters:
    """The fields of a form. Raises PageError."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise PageError(415, f"A form must have the type {FORM}.")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise PageError(400, "The request ended early.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise PageError(413, f"A form may have at most {MAX_BODY_BYTES:,} bytes.")
        if not message.get("more_body", False):
            break
    return read_fields(bytes(body))


def read_fields(data: bytes) -> Parameters:
    """The fields of a query or a form. Raises PageError."""
    try:
        text = data.decode("ascii")
        return Parameters(parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except ValueError:
        raise PageError(400, "The fields of the request are malformed, or too many.") from None
