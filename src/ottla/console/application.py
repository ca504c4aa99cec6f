"""The ASGI application: from a request to a page, with its session, its rights and its entry in the audit log.

The steps of each request: `guard.Guard` checks its origin; the route table names the operation that it needs; a
session is found or started; a form must contain the session's token; the page runs in a thread with the credentials of
the user. The cluster decides about permissions. Errors become pages with one sentence.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
import htpy as h
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route as AsgiRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import OperatorError, OttlaError
from ottla.console.audit import write_entry
from ottla.console.context import ClientGone, Context, PageError, Parameters, Services
from ottla.console.errors import error_page, sentence
from ottla.console.guard import SAFE_METHODS, Guard, read_fields, read_form
from ottla.console.route import Operation, Route
from ottla.console.sessions import LIFETIME_S, Session, SessionEnded
from ottla.console.settings import ConsoleSettings

MAX_THREADS = 40
"""Pages that run at once; others wait."""
OTHER_SITES = ("cross-site", "same-site")
CLIENT_CLOSED_REQUEST = 499
"""Status in the audit log of a request whose browser went away."""


def offered_routes(routes: Sequence[Route], settings: ConsoleSettings) -> list[Route]:
    """The rows that exist: in read-only mode none that changes the cluster, and none whose setting is missing."""
    return [
        row
        for row in routes
        if not (settings.is_read_only and row.operation.is_of_change)
        and (row.setting is None or getattr(settings, row.setting) is not None)
    ]


def create_application(services: Services, routes: Sequence[Route]) -> ASGIApp:
    """The application; `services.names` is set from the rows that exist."""
    offered = offered_routes(routes, services.settings)
    services = services._replace(names=frozenset(row.name for row in offered))
    limiter = anyio.CapacityLimiter(MAX_THREADS)
    paths: dict[str, dict[str, Route]] = {}
    for row in offered:
        paths.setdefault(row.path, {})[row.method] = row

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        services.sessions.end_all()

    async def not_found(request: object, error: Exception) -> Response:
        return PlainTextResponse("This page does not exist.\n", 404)

    inner = Starlette(
        routes=[AsgiRoute(path, Endpoint(services, rows, limiter), methods=list(rows)) for path, rows in paths.items()],
        lifespan=lifespan,
        exception_handlers={404: not_found},
    )
    settings = services.settings
    return Guard(inner, settings.origins(), settings.base_path, is_secure=settings.is_secure)


class Endpoint:
    """The ASGI application of one path."""

    def __init__(self, services: Services, rows: dict[str, Route], limiter: anyio.CapacityLimiter) -> None:
        self._services = services
        self._rows = rows
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        row = self._rows["GET" if scope["method"] == "HEAD" else scope["method"]]
        headers = Headers(scope=scope)
        session = self._session(headers)
        if session is None and scope["method"] == "GET" and headers.get("sec-fetch-site") in OTHER_SITES:
            await same_page(self._services.settings.base_path, scope)(scope, receive, send)
            return
        is_new = session is None
        if session is None:
            session = self._services.sessions.start()
            if not self._services.settings.transport.requires_sign_in:
                session.security = self._services.settings.transport.security
        peer = scope.get("client")
        nothing = Parameters({})
        context = Context(
            self._services, session, nothing, nothing, scope["path_params"], peer[0] if peer else "", headers
        )
        if scope["method"] == "HEAD" and row.operation.is_audited:
            response = Response(status_code=405)
        else:
            response = await self._respond(row, context, scope, receive)
        if is_new or context.session is not session:
            self._set_cookie(response, context.session)
        async with _watched(context, receive):
            await response(scope, receive, send)

    def _session(self, headers: Headers) -> Session | None:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(cookie_name(self._services.settings))
        except CookieError:
            return None
        return self._services.sessions.find(None if cookie is None else cookie.value)

    def _set_cookie(self, response: Response, session: Session) -> None:
        settings = self._services.settings
        response.set_cookie(
            cookie_name(settings),
            session.identity,
            max_age=int(LIFETIME_S),
            path=settings.base_path or "/",
            secure=settings.is_secure,
            httponly=True,
            samesite="strict",
        )

    async def _respond(self, row: Route, context: Context, scope: Scope, receive: Receive) -> Response:
        """The response of the page, or of its error; audited."""
        user = context.session.user
        try:
            context.query = read_fields(scope["query_string"])
            if scope["method"] not in SAFE_METHODS:
                context.form = await read_form(context.headers, receive)
                self._check_token(context)
            if row.operation is not Operation.PUBLIC and context.session.security is None:
                response: Response = RedirectResponse(self._sign_in_url(scope, context), 303)
            else:
                response = await self._run(row, context, receive)
        except ClientGone:
            response = Response(status_code=CLIENT_CLOSED_REQUEST)
        except SessionEnded:
            response = RedirectResponse(self._sign_in_url(scope, context), 303)
        except BrokerUnreachable as error:
            response = error_page(context, error, is_change=scope["method"] not in SAFE_METHODS)
        except OperatorError as error:
            response = self._rejected(context, error)
        except OttlaError as error:
            context.audit.setdefault("error", sentence(error))
            response = error_page(context, error, is_change=scope["method"] not in SAFE_METHODS)
        if row.operation.is_audited:
            self._write_entry(row, context, user, response.status_code)
        return response

    def _check_token(self, context: Context) -> None:
        if not hmac.compare_digest(context.form.text("token").encode(), context.session.token.encode()):
            raise PageError(403, "The form is older than the session: load the page again, and repeat the change.")

    async def _run(self, row: Route, context: Context, receive: Receive) -> Response:
        """Run the page in a thread, and watch for the end of the connection meanwhile."""

        def page() -> Response:
            return row.page(context) if row.operation is Operation.PUBLIC else context.run(row.page)

        failure: Exception | None = None
        response: Response | None = None
        async with _watched(context, receive):
            try:
                response = await anyio.to_thread.run_sync(page, limiter=self._limiter)
            except Exception as error:  # raised outside of the block, whose task group would wrap it
                failure = error
        if failure is not None:
            raise failure
        if response is None:
            raise ClientGone
        return response

    def _rejected(self, context: Context, error: OperatorError) -> Response:
        """The cluster rejected the credentials, for example after a change of the password."""
        if context.session.user is None:
            return error_page(context, PageError(502, str(error)))
        self._services.sessions.end(context.session)
        context.session = self._services.sessions.start()
        return RedirectResponse(context.url("/sign-in"), 303)

    def _sign_in_url(self, scope: Scope, context: Context) -> str:
        """The sign-in page, which leads back to this page, or to the page of the form."""
        base = self._services.settings.base_path
        if scope["method"] in SAFE_METHODS:
            query = scope["query_string"].decode("latin-1")
            target = scope["path"] + (f"?{query}" if query else "")
        else:
            parts = urlsplit(context.headers.get("referer", ""))
            is_here = f"{parts.scheme}://{parts.netloc}" in self._services.settings.origins()
            path = parts.path.removeprefix(base) if is_here else "/"
            target = path + (f"?{parts.query}" if parts.query else "")
        return context.url("/sign-in", next=None if target == "/" else target)

    def _write_entry(self, row: Route, context: Context, user: str | None, status: int) -> None:
        fields = {
            "user": "ANONYMOUS" if user is None else user,
            "address": context.address,
            "operation": row.operation.value,
            "page": f"{row.method} {row.path}",
            **context.path,
            **context.audit,
            "status": status,
        }
        write_entry(self._services.clock.time_ms(), fields)


def same_page(base_path: str, scope: Scope) -> Response:
    """A page that loads the requested one again, for a link on another site.

    Browsers send no SameSite=Strict cookie with such a link. A session that started then would replace that of the
    user, so any site could sign users out.
    """
    query = scope["query_string"].decode("latin-1")
    target = base_path + quote(scope["path"]) + (f"?{query}" if query else "")
    refresh = h.meta(http_equiv="refresh", content=f"0;url={target}")
    return HTMLResponse(str(h.html(lang="en")[h.head[h.title["Ottla console"], refresh], h.body]))


@asynccontextmanager
async def _watched(context: Context, receive: Receive) -> AsyncIterator[None]:
    """Set `context.gone` when the browser closes the connection during the block."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        context.gone.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield
        tasks.cancel_scope.cancel()


def cookie_name(settings: ConsoleSettings) -> str:
    """Cookies are not separated by port, so consoles on one host need different names."""
    return f"ottla_console_{settings.port}"
