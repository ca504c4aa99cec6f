"""Sign-in and sign-out."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse

from ottla.console.pages import sign_in
from ottla.console.route import Operation, Route
from ottla.console.sign_in import (
    FREE_FAILURES_OF_ADDRESS,
    FREE_FAILURES_OF_NAME,
    LONGEST_PAUSE_S,
    MAX_KEYS,
    Attempt,
    SignInThrottle,
    credentials,
)

from .browsing import SASL

ROWS = (
    Route("GET", "/sign-in", "sign-in form", sign_in.show, Operation.PUBLIC),
    Route("POST", "/sign-in", "sign in", sign_in.sign_in, Operation.PUBLIC),
    Route("POST", "/sign-out", "sign out", sign_in.sign_out, Operation.PUBLIC),
    Route("GET", "/page", "page", lambda context: PlainTextResponse(str(context.session.user)), Operation.READ),
    Route("POST", "/page", "change", lambda context: PlainTextResponse("changed"), Operation.WRITE),
)


def test_page_leads_to_sign_in_and_back(browse):
    browser = browse(ROWS, SASL)
    answer = browser.get("/page?a=1")
    assert (answer.status, answer.header("location")) == (303, "/sign-in?next=%2Fpage%3Fa%3D1")
    answer = browser.sign_in(next="/page?a=1")
    assert (answer.status, answer.header("location")) == (303, "/page?a=1")
    assert browser.get("/page").text == "ada"


def test_form_of_an_ended_session_leads_back_to_its_page(browse):
    browser = browse(ROWS, SASL)
    browser.get("/sign-in")
    answer = browser.post("/page", {"token": browser.token}, referer="http://127.0.0.1:8080/page?b=2")
    assert (answer.status, answer.header("location")) == (303, "/sign-in?next=%2Fpage%3Fb%3D2")
    answer = browser.post("/page", {"token": browser.token}, referer="http://evil.example/x")
    assert answer.header("location") == "/sign-in"


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "", "page", "/a\nb"])
def test_sign_in_never_leads_to_another_site(browse, target):
    answer = browse(ROWS, SASL).sign_in(next=target)
    assert (answer.status, answer.header("location")) == (303, "/")


def test_sign_in_starts_a_new_session_against_fixation(browse):
    browser = browse(ROWS, SASL)
    browser.get("/sign-in")
    before, token = browser.cookie, browser.token
    browser.sign_in()
    assert browser.cookie != before
    assert browser.token != token
    assert browser.services.sessions.find(before) is None


def test_wrong_password_is_refused_without_saying_why(browse):
    browser = browse(ROWS, SASL)
    answer = browser.sign_in(password="wrong")
    assert answer.status == 401
    assert "rejected this name or password" in answer.text
    assert "wrong" not in answer.text
    assert browser.get("/page").status == 303


def test_sign_out_ends_the_session(browse):
    browser = browse(ROWS, SASL)
    browser.sign_in()
    before = browser.cookie
    assert browser.post("/sign-out", {"token": browser.token}).status == 303
    assert browser.services.sessions.find(before) is None
    assert browser.get("/page").status == 303


def test_sign_in_needs_the_token_of_its_page(browse):
    browser = browse(ROWS, SASL)
    browser.get("/sign-in")
    assert browser.post("/sign-in", {"token": "guess", "name": "ada", "password": "right"}).status == 403
    assert browser.post("/sign-in", {"name": "ada", "password": "right"}).status == 403


def test_failed_attempts_of_a_name_are_throttled(browse, clock):
    browser = browse(ROWS, SASL)
    statuses = [browser.sign_in(password="wrong").status for _ in range(FREE_FAILURES_OF_NAME + 1)]
    assert statuses == [401] * FREE_FAILURES_OF_NAME + [429]
    assert browser.sign_in().status == 429
    clock.now_s += LONGEST_PAUSE_S
    assert browser.sign_in().status == 303


def test_attempts_with_many_names_are_throttled_by_address(clock):
    throttle = SignInThrottle(clock)
    waits = [throttle.begin(Attempt("10.0.0.1", f"user-{n}")) for n in range(FREE_FAILURES_OF_ADDRESS + 1)]
    assert waits[-2:] == [0.0, 2.0]
    assert throttle.begin(Attempt("10.0.0.2", "user-0")) == 0.0


def test_throttle_grows_to_its_longest_pause_and_is_bounded(clock):
    throttle = SignInThrottle(clock)
    pauses = []
    for _ in range(20):
        wait_s = throttle.begin(Attempt("10.0.0.1", "ada"))
        pauses.append(wait_s)
        clock.now_s += wait_s
    assert max(pauses) == LONGEST_PAUSE_S
    for number in range(MAX_KEYS):
        throttle.begin(Attempt(f"address {number}", str(number)))
    assert len(throttle._failures) == MAX_KEYS


def test_delegation_token_is_sent_by_scram(browse):
    browser = browse(ROWS, SASL)
    assert browser.sign_in("id-1", delegation="1").status == 400, "PLAIN has no delegation tokens"
    login = credentials(SASL, "SCRAM-SHA-512", "id-1", "hmac", by_token=True).login
    assert login is not None
    first = login("host").first()
    assert first.startswith(b"n,,n=id-1,r=")
    assert first.endswith(b",tokenauth=true")


def test_failed_attempts_at_an_issuer_count_by_address_only(clock):
    throttle = SignInThrottle(clock)
    waits = [throttle.begin(Attempt("10.0.0.1", None)) for _ in range(FREE_FAILURES_OF_ADDRESS + 1)]
    assert waits[-2:] == [0.0, 2.0]
    assert throttle.begin(Attempt("10.0.0.2", None)) == 0.0
