"""Masks at a real broker: a user without the permission finds a masked text in no response of any page."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from urllib.parse import urlencode

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.console.audit import AUDIT_LOGGER
from ottla.console.listing import DECODER_CHOICES
from ottla.console.mask_policy import MaskPolicy, TopicMask
from ottla.console.producing import produce_record
from ottla.console.route import Operation
from ottla.console.routes import ROUTES
from ottla.record.builder import RecordData
from ottla.search.masks import parse_rule

from ..console.browsing import Browser
from .conftest import SignIn
from .forms import Page
from .tailing import tail

TOPIC = "masked-orders"
CARD, KEY, TOKEN = "4111222233334444", "customer-7781", "token-5521"
SECRETS = (CARD, KEY, TOKEN)
UNMASKED = frozenset({"User:admin"})
POLICY = MaskPolicy(
    [
        TopicMask("masked-*", (parse_rule("value.card.number", "last 4"),), UNMASKED),
        TopicMask(TOPIC, (parse_rule("headers.token", "hidden"), parse_rule("key", "hash")), UNMASKED),
    ],
    b"secret",
)
DOCUMENT = json.dumps({"id": 1, "card": {"number": CARD}}).encode()
VALUES = (DOCUMENT, DOCUMENT[:-1], CARD.encode(), b"\0\0\0\0\7" + DOCUMENT, b"\xff" + CARD.encode(), None)
FORMS = tuple(
    form
    for text in SECRETS
    for form in (text, text.encode().hex(), text.encode().hex(" "), base64.b64encode(text.encode()).decode()[:-3])
)
"""The masked texts, and their beginnings in other encodings."""


@pytest.fixture(scope="module")
def masked(open_console: Callable[..., SignIn], admin: Cluster) -> Iterator[SignIn]:
    admin.topics.create(TOPIC, 1, 1)
    for value in VALUES:
        produce_record(admin, TOPIC, 0, RecordData(1, KEY.encode(), value, [("token", TOKEN.encode()), ("env", b"x")]))
    yield open_console(masks=POLICY)
    admin.topics.delete([TOPIC])


def addresses() -> Iterator[str]:
    """Every page of the topic, with the parameters by which a page could show more."""
    chosen: list[dict[str, str]] = [{"key_decoder": each, "value_decoder": each} for each in DECODER_CHOICES]
    chosen += [{"q": "id"}, {"q": "value.id > 0"}, {"part": "key"}, {"format": "csv"}, {"layout": "side"}]
    for row in ROUTES:
        if row.method != "GET" or "{topic}" not in row.path or row.name == "tail":
            continue
        path = row.path.replace("{topic}", TOPIC).replace("{partition}", "0")
        for offset in range(len(VALUES)):
            place = {"partition": "0", "offset": str(offset)}
            for fields in chosen if row.operation is Operation.READ_RECORDS else [{}]:
                yield path.replace("{offset}", str(offset)) + "?" + urlencode(place | fields)
            if "{offset}" not in path and row.name != "produce form":
                break


def shown(text: str) -> set[str]:
    return {form for form in FORMS if form in text}


def test_no_page_shows_masked_content(masked):
    reader, admin = masked("reader"), masked("admin")
    for target in addresses():
        answer = reader.get(target)
        assert answer.status in (200, 400, 403, 404), target
        assert shown(answer.body.decode("latin-1")) == set(), target
    assert shown(admin.get(f"/topics/{TOPIC}/records").text) >= set(SECRETS)


def test_filter_confirms_no_guess(masked):
    def matches(browser: Browser, query: str) -> str:
        text = Page(browser.get(f"/topics/{TOPIC}/records?" + urlencode({"q": query})).text).content
        (count,) = re.findall(r"(\d+) match", text)
        return str(count)

    for query in (
        CARD,
        f'value.card.number == "{CARD}"',
        "value.card.number ~ /^4111/",
        f"'{KEY}'",
        TOKEN,
        "size > 62",
    ):
        assert matches(masked("reader"), query) == "0", query
        assert matches(masked("admin"), query) != "0", query
    assert matches(masked("reader"), 'value.card.number == "****4444"') == "2"


def test_live_tail_is_masked(masked, admin):
    record = RecordData(1, KEY.encode(), DOCUMENT, [("token", TOKEN.encode())])
    for name, expected in (("reader", set()), ("admin", {CARD, KEY})):
        found = tail(masked(name), TOPIC, partial(produce_record, admin, TOPIC, 0, record))
        assert shown(json.dumps(found)) == expected, name


def test_masked_record_cannot_be_produced_again(masked):
    record = f"/topics/{TOPIC}/records/0/0"
    form = f"/topics/{TOPIC}/produce?partition=0&offset=0"
    assert masked("reader").get(form).status == 403
    assert form not in Page(masked("reader").get(record).text).links()
    assert form in Page(masked("admin").get(record).text).links()
    assert CARD in masked("admin").get(form).text


def test_unmasked_reading_is_in_the_audit_log(masked, caplog):
    logging.getLogger(AUDIT_LOGGER).propagate = True
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for name, page in product(("reader", "admin"), ("records", "records/0/0", "records/0/0/value", "export")):
            masked(name).get(f"/topics/{TOPIC}/{page}")
    entries = [json.loads(record.getMessage()) for record in caplog.records]
    entries = [each for each in entries if each["operation"] == "read records"]
    paths = "value.card.number, headers.token, key"
    assert [(each["user"], each.get("unmasked")) for each in entries] == [("reader", None)] * 4 + [("admin", paths)] * 4
    assert not shown(caplog.text)


def test_page_names_the_masked_parts(masked):
    page = f"/topics/{TOPIC}/records"
    assert "Masked for you: value.card.number, headers.token, key." in Page(masked("reader").get(page).text).content
    assert "Shown by your permission: value.card.number" in Page(masked("admin").get(page).text).content
