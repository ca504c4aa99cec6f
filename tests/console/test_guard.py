"""Where a request may come from, and the headers of each response."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse

from ottla.console.guard import MAX_BODY_BYTES, MAX_QUERY_CHARS, POLICY
from ottla.console.route import Operation, Route

ROWS = (
    Route("GET", "/page", "page", lambda context: PlainTextResponse("shown"), Operation.PUBLIC),
    Route("POST", "/page", "change", lambda context: PlainTextResponse("changed"), Operation.PUBLIC),
    Route("GET", "/echo", "echo", lambda context: PlainTextResponse(context.query.text("a")), Operation.PUBLIC),
)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"])
def test_own_hosts_are_served(browse, host):
    assert browse(ROWS).get("/page", host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example:8080", "127.0.0.1:8081", "127.0.0.1", "", "localhost.evil.org:8080"])
def test_other_hosts_are_refused_against_dns_rebinding(browse, host):
    assert browse(ROWS).get("/page", host=host).status == 421


def test_missing_host_is_refused(browse):
    assert browse(ROWS).send("GET", "/page", headers={"host": None}).status == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}, 200),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
    ],
)
def test_other_sites_may_only_link_to_pages(browse, headers, status):
    assert browse(ROWS).get("/page", **headers).status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8080", "sec_fetch_site": "same-origin"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://127.0.0.1:8080"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "none"}, 403),
    ],
)
def test_forms_of_other_sites_are_refused(browse, headers, status):
    browser = browse(ROWS)
    browser.get("/page")
    assert browser.post("/page", {"token": browser.token}, **headers).status == status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [("/page", "127.0.0.1:8080", 200), ("/none", "127.0.0.1:8080", 404), ("/page", "evil.example", 421)],
)
def test_every_response_has_the_security_headers(browse, target, host, status):
    answer = browse(ROWS).get(target, host=host)
    assert answer.status == status
    assert answer.header("content-security-policy") == POLICY
    assert "unsafe" not in POLICY
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("x-frame-options") == "DENY"
    assert answer.header("cache-control") == "no-store"


def test_large_bodies_and_queries_are_refused(browse):
    browser = browse(ROWS)
    browser.get("/page")
    assert browser.post("/page", {"token": browser.token, "a": "x" * MAX_BODY_BYTES}).status == 413
    assert browser.post("/page", {f"f{i}": "" for i in range(2_000)}).status == 400
    assert browser.get("/echo?a=" + "x" * MAX_QUERY_CHARS).status == 414


def test_malformed_fields_are_refused(browse):
    browser = browse(ROWS)
    assert browser.get("/echo?a=%ff").status == 400
    assert browser.send("POST", "/page", body=b"{}", headers={"content-type": "application/json"}).status == 415
    assert browser.send("DELETE", "/page").status == 405


def test_base_path_is_served_with_and_without_it(browse):
    browser = browse(ROWS, public_url="https://ops.example/kafka")
    for target in ("/kafka/page", "/page"):
        assert browser.get(target, host="ops.example").status == 200
    assert browser.get("/kafkapage", host="ops.example").status == 404


def test_pages_behind_tls_demand_it_for_later_requests(browse):
    answer = browse(ROWS, public_url="https://ops.example").get("/page", host="ops.example")
    assert answer.header("strict-transport-security") == "max-age=31536000"
    assert "; Secure" in (answer.header("set-cookie") or "")
