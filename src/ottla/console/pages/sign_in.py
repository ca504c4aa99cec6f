"""Sign-in and sign-out."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

import htpy as h
from htpy import Node
from starlette.responses import RedirectResponse, Response

from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import KafkaError, OperatorError
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.errors import sentence
from ottla.console.openid import IssuerError, OpenIdProvider, SignInRefused, UserTokens
from ottla.console.sessions import PendingSignIn, SessionEnded
from ottla.console.sign_in import MAX_CREDENTIAL_CHARS, Attempt, credentials
from ottla.security.sasl.credentials import BY_NAME

logger = logging.getLogger(__name__)

CALLBACK = "/sign-in/callback"
"""Path to which the issuer sends browsers back, below the address of the console."""
MAX_ERROR_CHARS = 100


def show(context: Context) -> Response:
    """The form, or the first page for a session that is signed in."""
    if context.session.security is not None:
        return context.redirect(context.url("/"))
    return _form(context, None, 200)


def sign_in(context: Context) -> Response:
    """Check name and password at the cluster, and start a new session."""
    form, services = context.form, context.services
    mechanisms = services.settings.transport.mechanisms
    if not mechanisms:
        return context.redirect(context.url("/"))
    name, password = form.required("name"), form.required("password")
    if max(len(name), len(password)) > MAX_CREDENTIAL_CHARS:
        raise PageError(400, f"Name and password have at most {MAX_CREDENTIAL_CHARS} characters.")
    mechanism, by_token = form.choice("mechanism", mechanisms), form.is_set("delegation")
    if by_token and mechanism not in BY_NAME:
        raise PageError(400, f"A delegation token needs one of the mechanisms {', '.join(BY_NAME)}.")
    attempt = Attempt(context.address, name)
    wait_s = services.throttle.begin(attempt)
    if wait_s > 0:
        return _paused(context, wait_s)
    security = credentials(services.settings.transport, mechanism, name, password, by_token=by_token)
    user = f"delegation token {name}" if by_token else name
    problem = _enter(context, attempt, user, security)
    if problem is not None:
        return problem
    return context.redirect(context.url(_next(form.text("next"))))


def go_to_issuer(context: Context) -> Response:
    """Send the browser to the issuer, with the state of a new sign-in of this session."""
    provider, settings = _provider(context), context.settings
    target = _next(context.query.text("next"))
    host = context.headers.get("host", "").lower()
    if settings.public_url is None and host != urlsplit(settings.address).netloc.lower():
        # The issuer returns to the address of the console, where the cookie of another name would be missing.
        return RedirectResponse(settings.address + context.url("/sign-in/issuer", next=target), 303)
    sessions, clock = context.services.sessions, context.services.clock
    state, nonce, verifier = (sessions.random_secret() for _ in range(3))
    pending = PendingSignIn(state, nonce, verifier, target, clock.monotonic())
    try:
        url = provider.authorization_url(pending, settings.address + CALLBACK)
    except IssuerError as error:
        return _issuer_failed(context, error)
    context.session.put_sign_in(pending)
    return RedirectResponse(url, 303)


def return_from_issuer(context: Context) -> Response:
    """Redeem the code of a sign-in that this session started, and start a new session with the user's token."""
    provider, services, query = _provider(context), context.services, context.query
    pending = context.session.take_sign_in(query.text("state"), services.clock.monotonic())
    if pending is None:
        problem = "This sign-in was not started in this browser, was already used, or took too long: sign in again."
        return _form(context, problem, 400)
    if query.is_set("error"):
        reason = formats.visible(query.text("error")[:MAX_ERROR_CHARS])
        return _form(context, f"The issuer did not sign you in: {reason}.", 403)
    attempt = Attempt(context.address, None)
    wait_s = services.throttle.begin(attempt)
    if wait_s > 0:
        return _paused(context, wait_s)
    redirect_uri = context.settings.address + CALLBACK
    try:
        user, grant = provider.redeem(query.text("code"), query.text("iss") or None, pending, redirect_uri)
    except IssuerError as error:
        return _issuer_failed(context, error)
    except SignInRefused as error:
        logger.warning("sign-in refused: %s", error)
        return _form(context, "The sign-in was refused. The log of the console has the reason.", 401)
    tokens = UserTokens(provider, grant, services.clock)
    refused = _enter(context, attempt, user, tokens.security(context.settings.transport.security))
    if refused is not None:
        return refused
    context.session.credentials_end_s = tokens.ends_s
    return context.redirect(context.url(pending.next_path))


def sign_out(context: Context) -> Response:
    """End the session."""
    context.services.sessions.end(context.session)
    context.session = context.services.sessions.start()
    if not context.settings.transport.requires_sign_in:
        context.session.security = context.settings.transport.security
    return context.redirect(context.url("/sign-in"))


def _enter(context: Context, attempt: Attempt, user: str, security: ClientSecurity) -> Response | None:
    """Start a new session if the cluster accepts the credentials, so that the old cookie is worthless; else the page
    that says why it does not."""
    services = context.services
    try:
        with services.open_cluster(security) as cluster:
            cluster.describe()
    except (BrokerUnreachable, KafkaError) as error:
        return _form(context, sentence(error), 503)
    except (OperatorError, SessionEnded):
        rejected = "your token" if attempt.name is None else "this name or password"
        return _form(context, f"The cluster rejected {rejected}.", 401)
    services.throttle.succeeded(attempt)
    services.sessions.end(context.session)
    context.session = services.sessions.start()
    context.session.user, context.session.security = user, security
    return None


def _provider(context: Context) -> OpenIdProvider:
    if context.services.openid is None:
        raise PageError(404, "This console has no sign-in at an issuer.")
    return context.services.openid


def _next(target: str) -> str:
    """A path of the console: never another site."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path else "/"


def _paused(context: Context, wait_s: float) -> Response:
    return _form(context, f"Too many failed attempts: wait {formats.duration(wait_s + 1)}.", 429)


def _issuer_failed(context: Context, error: IssuerError) -> Response:
    logger.warning("sign-in failed: %s", error)
    return _form(context, "The issuer cannot be used now. The log of the console has the reason.", 503)


def _form(context: Context, problem: str | None, status: int) -> Response:
    transport = context.settings.transport
    target = _next(context.form.text("next") or context.query.text("next"))
    text = (
        "With your name and password of the Kafka cluster."
        if transport.mechanisms
        else "With your account at the issuer of your tokens."
    )
    return html.page(
        context,
        "Sign in",
        h.h1["Sign in"],
        h.p[text, " The ACLs and quotas of the cluster apply to everything you do here."],
        None if problem is None else h.p(".error", role="alert")[problem],
        None if transport.openid is None else _issuer_link(context, transport.openid.issuer, target),
        _password_form(context, transport.mechanisms, target) if transport.mechanisms else None,
        status=status,
    )


def _issuer_link(context: Context, issuer: str, target: str) -> Node:
    url = context.url("/sign-in/issuer", next=None if target == "/" else target)
    return h.p[h.a(".button.primary", href=url)["Sign in at ", h.bdi[urlsplit(issuer).netloc]]]


def _password_form(context: Context, mechanisms: tuple[str, ...], target: str) -> Node:
    form = context.form
    return html.form(
        context,
        "/sign-in",
        h.input(type="hidden", name="next", value=target),
        html.field("Name", h.input(name="name", autocomplete="username", required=True, value=form.text("name"))),
        html.field(
            "Password", h.input(name="password", type="password", autocomplete="current-password", required=True)
        ),
        html.field(
            "Mechanism",
            html.select("mechanism", [(each, each) for each in mechanisms], form.text("mechanism")),
            "As the cluster stores your password.",
        )
        if len(mechanisms) > 1
        else h.input(type="hidden", name="mechanism", value=mechanisms[0]),
        h.label(".check")[
            h.input(type="checkbox", name="delegation", value="1", checked=form.is_set("delegation")),
            "Delegation token: its id and its HMAC instead of name and password",
        ]
        if any(each in BY_NAME for each in mechanisms)
        else None,
        h.button(".primary", type="submit")["Sign in"],
        classes="act narrow",
    )
