"""Sign-in at an issuer over HTTPS: the flow, attacks on it, and the end of its tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.responses import PlainTextResponse

from ottla.console.openid import RETRY_S
from ottla.console.pages import sign_in
from ottla.console.route import Operation, Route
from ottla.console.sessions import MAX_SIGN_INS, SIGN_IN_S
from ottla.console.settings import read_transport

from ..issuer import Issuer
from ..openid_issuer import CLIENT_ID, CLIENT_SECRET, OpenIdIssuer
from .browsing import Answer, Browser

ROWS = (
    Route("GET", "/sign-in", "sign-in form", sign_in.show, Operation.PUBLIC),
    Route("POST", "/sign-in", "sign in", sign_in.sign_in, Operation.PUBLIC),
    Route("GET", "/sign-in/issuer", "sign in at issuer", sign_in.go_to_issuer, Operation.PUBLIC),
    Route("GET", "/sign-in/callback", "answer of issuer", sign_in.return_from_issuer, Operation.PUBLIC),
    Route("POST", "/sign-out", "sign out", sign_in.sign_out, Operation.PUBLIC),
    Route("GET", "/page", "page", lambda context: PlainTextResponse(token_of(context.session)), Operation.READ),
)
LINKED = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


def token_of(session: Any) -> str:
    """User of the session, and the claims of the token that its requests carry."""
    first = session.security.login("host").first().decode()
    payload = first.partition("Bearer ")[2].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"{session.user} {claims['sub']} {claims['jti']}"


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


@pytest.fixture
def provider(running, clock) -> OpenIdIssuer:
    return OpenIdIssuer(running, lambda: clock.now_s)


@pytest.fixture
def browser(browse, provider, tmp_path) -> Browser:
    opened: Browser = browse(ROWS, read_transport(provider.properties(tmp_path), "the file"))
    return opened


def begin(browser: Browser, provider: OpenIdIssuer, target: str = "/sign-in/issuer") -> str:
    """Go to the issuer and be redirected; the path of the console with its query."""
    answer = browser.get(target)
    assert answer.status == 303, answer.text
    parts = urlsplit(provider.authorize(str(answer.header("location"))))
    assert (parts.scheme, parts.netloc, parts.path) == ("http", "127.0.0.1:8080", sign_in.CALLBACK)
    return f"{parts.path}?{parts.query}"


def enter(browser: Browser, provider: OpenIdIssuer) -> None:
    answer = browser.get(begin(browser, provider))
    assert (answer.status, answer.header("location")) == (303, "/"), answer.text


def is_refused(browser: Browser, answer: Answer, status: int) -> bool:
    """True if the response is an error, and the browser is not signed in."""
    assert answer.status == status, answer.text
    assert CLIENT_SECRET not in answer.text
    return 'role="alert"' in answer.text and browser.get("/page").status == 303


def test_sign_in_at_issuer_uses_the_token_of_the_user(browser, provider):
    answer = browser.get("/page?a=1")
    page = browser.get(str(answer.header("location")))
    assert 'href="/sign-in/issuer?next=%2Fpage%3Fa%3D1"' in page.text
    assert 'type="password"' not in page.text
    callback = begin(browser, provider, "/sign-in/issuer?next=%2Fpage%3Fa%3D1")
    answer = browser.get(callback)
    assert (answer.status, answer.header("location")) == (303, "/page?a=1")
    assert browser.get("/page").text.startswith("ada ada ")
    (grant,) = provider.grants
    assert grant["redirect_uri"] == "http://127.0.0.1:8080/sign-in/callback"
    assert len(grant["code_verifier"]) >= 43


def test_request_to_issuer_has_fresh_state_nonce_and_challenge(browser):
    queries = [parse_qs(urlsplit(str(browser.get("/sign-in/issuer").header("location"))).query) for _ in range(2)]
    assert queries[0] | {"state": [], "nonce": [], "code_challenge": []} == {
        "response_type": ["code"],
        "client_id": [CLIENT_ID],
        "redirect_uri": ["http://127.0.0.1:8080/sign-in/callback"],
        "scope": ["openid"],
        "state": [],
        "nonce": [],
        "code_challenge": [],
        "code_challenge_method": ["S256"],
    }
    assert len({query[name][0] for query in queries for name in ("state", "nonce", "code_challenge")}) == 6


def test_link_of_the_issuer_is_loaded_again_with_the_cookie(browser, provider):
    callback, cookie = begin(browser, provider), browser.cookie
    browser.cookie = None  # SameSite=Strict: the issuer's link comes without it
    answer = browser.get(callback, **LINKED)
    assert (answer.status, answer.header("set-cookie"), provider.grants) == (200, None, [])
    browser.cookie = cookie
    assert browser.get(callback, sec_fetch_site="same-origin").status == 303
    assert browser.get("/page").text.startswith("ada ada ")


def test_unknown_state_is_refused(browser, provider):
    callback = begin(browser, provider)
    state = parse_qs(urlsplit(callback).query)["state"][0]
    for wrong in (callback.replace(state, "guess"), callback.replace(f"&state={state}", "")):
        assert is_refused(browser, browser.get(wrong), 400)
    assert provider.grants == []


def test_code_is_redeemed_once(browser, provider):
    callback = begin(browser, provider)
    assert browser.get(callback).status == 303
    assert browser.get(callback).status == 400
    assert len(provider.grants) == 1


def test_sign_in_of_another_browser_is_refused(browser, provider):
    callback = begin(browser, provider)
    browser.cookie = None
    assert is_refused(browser, browser.get(callback), 400)
    assert provider.grants == []


def test_code_of_another_sign_in_is_refused(browser, provider):
    stolen = parse_qs(urlsplit(begin(browser, provider)).query)["code"][0]
    callback = begin(browser, provider)
    code = parse_qs(urlsplit(callback).query)["code"][0]
    assert is_refused(browser, browser.get(callback.replace(code, stolen)), 401), "its verifier is another one"


def test_sign_in_that_took_too_long_is_refused(browser, provider, clock):
    callback = begin(browser, provider)
    clock.now_s += SIGN_IN_S
    assert is_refused(browser, browser.get(callback), 400)


def test_started_sign_ins_of_a_session_are_bounded(browser, provider):
    first = begin(browser, provider)
    for _ in range(MAX_SIGN_INS):
        latest = begin(browser, provider)
    assert browser.get(first).status == 400
    assert browser.get(latest).status == 303


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "kafka"},
        {"aud": [CLIENT_ID, "kafka"], "azp": "kafka"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"sub": None},
        {"sub": ["ada"]},
        {"sub": "a\ud800"},
    ],
)
def test_id_token_of_another_sign_in_client_or_time_is_refused(browser, provider, claims):
    provider.id_claims = claims
    assert is_refused(browser, browser.get(begin(browser, provider)), 401)


def test_response_of_another_issuer_is_refused(browser, provider):
    callback = begin(browser, provider)
    assert is_refused(browser, browser.get(callback.partition("&iss=")[0] + "&iss=https%3A%2F%2Fevil.example"), 401)
    assert provider.grants == []


@pytest.mark.parametrize("target", ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2F%5Cevil.example"])
def test_sign_in_at_issuer_never_leads_to_another_site(browser, provider, target):
    callback = begin(browser, provider, f"/sign-in/issuer?next={target}")
    answer = browser.get(f"{callback}&next={target}")
    assert (answer.status, answer.header("location")) == (303, "/")


def test_sign_in_at_issuer_starts_a_new_session_against_fixation(browser, provider):
    browser.get("/sign-in")
    before, token = browser.cookie, browser.token
    enter(browser, provider)
    assert browser.cookie != before
    assert browser.token != token
    assert browser.services.sessions.find(before) is None


def test_refusal_of_the_issuer_is_shown_as_text(browser, provider):
    state = parse_qs(urlsplit(begin(browser, provider)).query)["state"][0]
    answer = browser.get(f"/sign-in/callback?state={state}&error=%3Cb%3Eaccess_denied")
    assert is_refused(browser, answer, 403)
    assert "&lt;b&gt;access_denied" in answer.text


def test_password_form_accepts_nothing_without_its_mechanisms(browser):
    browser.get("/sign-in")
    fields = {"token": browser.token, "name": "ada", "password": "right", "mechanism": "OAUTHBEARER"}
    assert browser.post("/sign-in", fields).status == 303
    assert browser.get("/page").status == 303


def test_issuer_is_offered_beside_passwords(browse, provider, tmp_path):
    properties = provider.properties(tmp_path)
    del properties["sasl.mechanism"]
    browser = browse(ROWS, read_transport(properties, "the file"))
    assert "Sign in at" in browser.get("/sign-in").text
    assert browser.sign_in().status == 303
    fields = {"token": browser.token, "name": "ada", "password": "right", "mechanism": "OAUTHBEARER"}
    assert browser.post("/sign-in", fields).status == 400


def test_other_name_of_the_console_leads_to_its_address(browser):
    answer = browser.get("/sign-in/issuer?next=%2Fpage", host="localhost:8080")
    assert answer.header("location") == "http://127.0.0.1:8080/sign-in/issuer?next=%2Fpage"


def test_issuer_returns_to_the_public_url(browse, provider, tmp_path):
    transport = read_transport(provider.properties(tmp_path), "the file")
    browser = browse(ROWS, transport, public_url="https://ops.example/kafka")
    query = parse_qs(urlsplit(str(browser.get("/sign-in/issuer").header("location"))).query)
    assert query["redirect_uri"] == ["https://ops.example/kafka/sign-in/callback"]


def test_session_ends_with_a_token_that_cannot_be_renewed(browser, provider, clock):
    enter(browser, provider)
    clock.now_s += provider.life_s - 1
    assert browser.get("/page").status == 200
    clock.now_s += 1
    assert browser.get("/page").status == 303
    assert len(provider.grants) == 1


def test_token_is_renewed_until_the_issuer_refuses(browser, provider, clock):
    provider.has_refresh = True
    enter(browser, provider)
    first = browser.get("/page").text
    clock.now_s += provider.life_s + 1
    second = browser.get("/page").text
    assert first.split()[:2] == second.split()[:2]
    assert first != second
    assert [grant["grant_type"] for grant in provider.grants] == ["authorization_code", "refresh_token"]
    provider.failure = 400
    clock.now_s += 0.9 * provider.life_s
    assert browser.get("/page").text == second, "a valid token is used until it expires"
    clock.now_s += 0.2 * provider.life_s
    assert browser.get("/page").status == 303


def test_outage_of_the_issuer_ends_no_session(browser, provider, clock):
    provider.has_refresh = True
    enter(browser, provider)
    first = browser.get("/page").text
    provider.failure = 503
    clock.now_s += 0.9 * provider.life_s
    assert [browser.get("/page").text for _ in range(3)] == [first] * 3
    assert len(provider.grants) == 2, "one attempt"
    clock.now_s += max(RETRY_S, 0.2 * provider.life_s)
    answer = browser.get("/page")
    assert (answer.status, "data-reload" in answer.text) == (503, True)
    provider.failure = 0
    assert browser.get("/page").status == 200


def test_new_signing_key_is_looked_up(browser, provider):
    enter(browser, provider)
    provider.key = 1
    enter(browser, provider)
    provider.key = 0


def test_secret_is_sent_in_the_body_where_the_issuer_wants_it(browser, provider):
    provider.document = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    enter(browser, provider)


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "http://evil.example/authorize"},
        {"token_endpoint": None},
        {"jwks_uri": "ftp://evil.example"},
        {"code_challenge_methods_supported": ["plain"]},
        {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
    ],
)
def test_unusable_issuer_is_reported_to_the_operator(browser, provider, document, caplog):
    provider.document = document
    assert is_refused(browser, browser.get("/sign-in/issuer"), 503)
    assert "oidc.issuer in the file" in caplog.text


def test_untrusted_issuer_is_not_used(browse, provider, tmp_path, caplog):
    properties = provider.properties(tmp_path)
    del properties["oidc.ssl.truststore.location"]
    browser = browse(ROWS, read_transport(properties, "the file"))
    assert is_refused(browser, browser.get("/sign-in/issuer"), 503)
    assert "certificate verify failed" in caplog.text
