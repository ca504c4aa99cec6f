"""Pages for errors: the HTTP status, one sentence, and what to do."""

from __future__ import annotations

import htpy as h
from starlette.responses import Response

from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import ErrorCode, KafkaError, OttlaError
from ottla.console import formats, html
from ottla.console.context import Context, PageError
from ottla.console.openid import IssuerError

FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
MISSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)
UNAVAILABLE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
"""Errors that end by themselves when a broker returns, or another one takes over."""
_TITLES = {
    400: "That did not work",
    403: "Not permitted",
    404: "Not found",
    409: "Changed in the meantime",
    503: "No response",
}


def status_of(error: OttlaError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, PageError):
        return error.status
    if isinstance(error, (BrokerUnreachable, IssuerError)):
        return 503
    if isinstance(error, KafkaError):
        if error.code in FORBIDDEN:
            return 403
        if error.code in MISSING:
            return 404
        return 503 if error.code in UNAVAILABLE else 400
    return 502


def error_page(context: Context, error: OttlaError, *, is_change: bool = False) -> Response:
    """The page of an error. Without response of the cluster it loads again by itself, unless that repeats a change."""
    status = status_of(error)
    reloads = status == 503 and not is_change
    hints = {
        403: "The cluster refused this for your user. Ask its operator for an ACL.",
        503: "This page loads again by itself."
        if reloads
        else "The change may have been made or not: look at the cluster before you repeat it.",
    }
    return html.page(
        context,
        _TITLES.get(status, "Error"),
        html.heading(_TITLES.get(status, "Error")),
        h.p(".error", role="alert")[formats.visible(sentence(error))],
        h.p[hints[status]] if status in hints else None,
        h.div(data_reload="5") if reloads else None,
        h.p[h.a(href=context.url("/"))["Overview"]],
        status=status,
    )


def sentence(error: OttlaError) -> str:
    """The message of an error with a capital letter and a full stop."""
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
