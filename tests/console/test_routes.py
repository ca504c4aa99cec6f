"""The route table, walked without rights: no page runs, and no change is reached."""

from __future__ import annotations

import json
import logging
import re

import pytest
from starlette.responses import PlainTextResponse

from ottla.console.audit import AUDIT_LOGGER, MAX_FIELD_CHARS
from ottla.console.html import NAVIGATION
from ottla.console.route import Operation, Route
from ottla.console.routes import ROUTES
from ottla.console.topic_parts import TABS

from .browsing import SASL, Answer, Browser

PROTECTED = [row for row in ROUTES if row.operation is not Operation.PUBLIC]
FILLED = {"topic": "orders", "partition": "0", "offset": "0", "name": "console.css"}


def address(row: Route) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: FILLED[match[1]], row.path)


def request(browser: Browser, row: Route) -> Answer:
    """Send the request of a row, with the token of the session."""
    return browser.get(address(row)) if row.method == "GET" else browser.post(address(row), {"token": browser.token})


@pytest.fixture
def reached() -> list[str]:
    return []


@pytest.fixture
def rows(reached):
    """The table, with pages that only note that they ran."""

    def noting(row: Route) -> Route:
        def page(context):
            reached.append(row.name)
            return PlainTextResponse("ran")

        return row if row.operation is Operation.PUBLIC else row._replace(page=page)

    return [noting(row) for row in ROUTES]


def test_each_row_has_its_own_name_and_place():
    assert len({row.name for row in ROUTES}) == len(ROUTES)
    assert len({(row.method, row.path) for row in ROUTES}) == len(ROUTES)
    assert {name for _, _, name in (*NAVIGATION, *TABS)} <= {row.name for row in ROUTES}


def test_changes_are_posts_and_reads_are_gets():
    for row in PROTECTED:
        assert (row.method == "POST") == (row.operation in (Operation.WRITE, Operation.DESTROY)), row


def test_topic_can_have_the_name_of_any_page():
    shapes = {row.path.split("/")[1] for row in ROUTES if row.path.startswith("/topics/")}
    assert shapes == {"topics"}
    assert all(row.path.startswith("/topics/{topic}") for row in ROUTES if row.path.startswith("/topics/"))


def test_pages_need_sign_in(browse, rows, reached):
    browser = browse(rows, SASL)
    browser.get("/sign-in")
    for row in PROTECTED:
        answer = (
            browser.get(address(row)) if row.method == "GET" else browser.post(address(row), {"token": browser.token})
        )
        assert answer.status == 303, row
        assert answer.header("location").startswith("/sign-in"), row
    assert reached == []


@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
def test_changes_need_the_token_of_the_session(browse, rows, reached, token):
    browser = browse(rows)
    browser.get("/sign-in")
    for row in PROTECTED:
        if row.method == "POST":
            fields = {} if token is None else {"token": token}
            assert browser.post(address(row), fields).status == 403, row
    assert reached == []


def test_token_of_another_session_is_refused(browse, rows, reached):
    browser = browse(rows)
    browser.get("/sign-in")
    other, browser.cookie = browser.token, None
    browser.get("/sign-in")
    assert browser.post("/create-topic", {"token": other}).status == 403
    assert reached == []


def test_every_row_runs_with_session_and_token(browse, rows, reached):
    browser = browse(rows)
    browser.get("/sign-in")
    for row in PROTECTED:
        answer = (
            browser.get(address(row)) if row.method == "GET" else browser.post(address(row), {"token": browser.token})
        )
        assert answer.text == "ran", row
    assert reached == [row.name for row in PROTECTED]


def test_read_only_mode_has_no_row_that_prepares_or_makes_a_change(browse, rows, reached):
    browser = browse(rows, is_read_only=True)
    browser.get("/sign-in")
    for row in PROTECTED:
        if row.operation.is_of_change:
            answer = (
                browser.get(address(row))
                if row.method == "GET"
                else browser.post(address(row), {"token": browser.token})
            )
            assert answer.status in (404, 405), row
    assert reached == []


def test_row_without_its_setting_does_not_exist(browse, rows, reached):
    browser = browse(rows, tables=None)
    browser.get("/sign-in")
    absent = [row for row in ROUTES if row.setting is not None]
    assert [row.name for row in absent] == ["pipelines", "pipeline states", "pipeline"]
    for row in absent:
        assert browser.get(address(row)).status == 404, row
    assert reached == []


def test_changes_and_reads_of_records_are_audited(browse, rows, caplog):
    logging.getLogger(AUDIT_LOGGER).propagate = True
    browser = browse(rows)
    browser.get("/sign-in")
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        browser.get("/topics/orders/records/0/7")
        browser.get("/topics")
        browser.post("/topics/orders/delete", {"token": browser.token, "confirm": "orders"})
    entries = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(each["page"], each["topic"], each["status"]) for each in entries] == [
        ("GET /topics/{topic}/records/{partition}/{offset}", "orders", 200),
        ("POST /topics/{topic}/delete", "orders", 200),
    ]
    assert entries[0] | {"time": ""} == {
        "time": "",
        "user": "ANONYMOUS",
        "address": "127.0.0.1",
        "operation": "read records",
        "page": "GET /topics/{topic}/records/{partition}/{offset}",
        "topic": "orders",
        "partition": "0",
        "offset": "7",
        "status": 200,
    }


def test_audit_entry_is_one_bounded_line(browse, rows, caplog):
    logging.getLogger(AUDIT_LOGGER).propagate = True
    browser = browse(rows)
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        browser.get("/topics/a\nb" + "x" * 5_000 + "/records")
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 2 * MAX_FIELD_CHARS


def test_only_named_static_files_are_served(browse):
    browser = browse()
    assert browser.get("/static/console.js").header("content-type") == "text/javascript; charset=utf-8"
    assert browser.get("/static/console.css").status == 200
    for name in ("..", "__init__.py", "%2e%2e%2fcommand.py", "nothing.js"):
        assert browser.get(f"/static/{name}").status == 404, name
