"""Sign-in and sign-out."""

from __future__ import annotations

import htpy as h
from starlette.responses import Response

from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import KafkaError, OperatorError
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.errors import sentence
from ottla.console.sign_in import MAX_CREDENTIAL_CHARS, Attempt, credentials


def show(context: Context) -> Response:
    """The form, or the first page for a session that is signed in."""
    if context.session.security is not None:
        return context.redirect(context.url("/"))
    return _form(context, None, 200)


def sign_in(context: Context) -> Response:
    """Check name and password at the cluster, and start a new session, so that the old cookie is worthless."""
    form, services = context.form, context.services
    if not services.settings.transport.mechanisms:
        return context.redirect(context.url("/"))
    name, password = form.required("name"), form.required("password")
    if max(len(name), len(password)) > MAX_CREDENTIAL_CHARS:
        raise PageError(400, f"Name and password have at most {MAX_CREDENTIAL_CHARS} characters.")
    mechanism = form.choice("mechanism", services.settings.transport.mechanisms)
    attempt = Attempt(context.address, name)
    wait_s = services.throttle.begin(attempt)
    if wait_s > 0:
        return _form(context, f"Too many failed attempts: wait {formats.duration(wait_s + 1)}.", 429)
    security = credentials(services.settings.transport, mechanism, name, password)
    try:
        with services.open_cluster(security) as cluster:
            cluster.describe()
    except (BrokerUnreachable, KafkaError) as error:
        return _form(context, sentence(error), 503)
    except OperatorError:
        return _form(context, "The cluster rejected this name or password.", 401)
    services.throttle.succeeded(attempt)
    services.sessions.end(context.session)
    context.session = services.sessions.start()
    context.session.user, context.session.security = name, security
    return context.redirect(context.url(_next(form.text("next"))))


def sign_out(context: Context) -> Response:
    """End the session."""
    context.services.sessions.end(context.session)
    context.session = context.services.sessions.start()
    if not context.settings.transport.mechanisms:
        context.session.security = context.settings.transport.security
    return context.redirect(context.url("/sign-in"))


def _next(target: str) -> str:
    """A path of the console: never another site."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_path else "/"


def _form(context: Context, problem: str | None, status: int) -> Response:
    mechanisms = context.settings.transport.mechanisms
    target = context.form.text("next") or context.query.text("next")
    content = html.form(
        context,
        "/sign-in",
        h.input(type="hidden", name="next", value=_next(target)),
        html.field(
            "Name", h.input(name="name", autocomplete="username", required=True, value=context.form.text("name"))
        ),
        html.field(
            "Password", h.input(name="password", type="password", autocomplete="current-password", required=True)
        ),
        html.field(
            "Mechanism",
            html.select("mechanism", [(each, each) for each in mechanisms], context.form.text("mechanism")),
            "As the cluster stores your password.",
        )
        if len(mechanisms) > 1
        else h.input(type="hidden", name="mechanism", value=mechanisms[0] if mechanisms else ""),
        h.button(".primary", type="submit")["Sign in"],
        classes="act narrow",
    )
    return html.page(
        context,
        "Sign in",
        h.h1["Sign in"],
        h.p["With your name and password of the Kafka cluster. Its ACLs and quotas apply to everything you do here."],
        None if problem is None else h.p(".error", role="alert")[problem],
        content,
        status=status,
    )
