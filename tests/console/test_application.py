"""Requests that end early or fail."""

from __future__ import annotations

import threading
import time

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse

from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.console.application import CLIENT_CLOSED_REQUEST
from ottla.console.context import ClientGone
from ottla.console.route import Operation, Route

from .browsing import SASL


def row(page, operation=Operation.READ) -> tuple[Route, ...]:
    return (Route("GET", "/page", "page", page, operation),)


def until_gone(context) -> None:
    while True:
        context.check_alive()
        time.sleep(0.001)


def test_page_stops_when_the_browser_leaves(browse):
    def page(context):
        until_gone(context)

    assert browse(row(page)).send("GET", "/page", leaves=lambda: True).status == CLIENT_CLOSED_REQUEST


def test_download_stops_when_the_browser_leaves(browse):
    started, stopped = threading.Event(), []

    def page(context):
        def lines():
            yield b"first"
            started.set()
            try:
                until_gone(context)
            except ClientGone:
                stopped.append(True)

        return StreamingResponse(lines())

    browse(row(page)).send("GET", "/page", leaves=started.is_set)
    deadline = time.monotonic() + 60
    while not stopped:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no <b>"), 403),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no"), 404),
        (KafkaError(ErrorCode.INVALID_CONFIG, "no"), 400),
        (BrokerUnreachable("no"), 503),
        (KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no"), 503),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION, "no"), 503),
        (OperatorError("no"), 502),
    ],
)
def test_errors_of_the_cluster_become_pages(browse, error, status):
    def page(context):
        raise error

    answer = browse(row(page)).get("/page")
    assert answer.status == status
    assert "<b>" not in answer.text
    assert ("data-reload" in answer.text) == (status == 503)


def test_rejected_credentials_end_the_session(browse):
    def page(context):
        raise OperatorError("the broker rejected the login")

    from ottla.console.routes import ROUTES

    browser = browse((*row(page), *ROUTES), SASL)
    browser.sign_in()
    before = browser.cookie
    answer = browser.get("/page")
    assert (answer.status, answer.header("location")) == (303, "/sign-in")
    assert browser.services.sessions.find(before) is None


def test_session_that_ends_meanwhile_leads_to_sign_in(browse):
    def page(context):
        context.services.sessions.end(context.session)
        with context.session.client(context.services.open_cluster):
            return PlainTextResponse("shown")

    assert browse(row(page)).get("/page").status == 303


def test_streams_answer_no_head_request(browse):
    browser = browse(row(lambda context: PlainTextResponse("shown"), Operation.READ_RECORDS))
    assert browser.send("HEAD", "/page").status == 405


def test_page_loads_again_after_an_outage_but_a_change_does_not(browse):
    def page(context):
        raise BrokerUnreachable("no")

    rows = (*row(page), Route("POST", "/page", "change", page, Operation.WRITE))
    browser = browse(rows)
    assert "data-reload" in browser.get("/page").text
    answer = browser.post("/page", {"token": browser.token})
    assert answer.status == 503
    assert "data-reload" not in answer.text
    assert "may have been made or not" in answer.text
