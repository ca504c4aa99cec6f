"""The route table, walked by a user with lesser rights, with wrong names and with old versions: nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from ottla.client.admin.acls import AclFilter
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import LATEST_TIMESTAMP, ConfigOperation, ResourceType
from ottla.common.kafka.acl import Permission
from ottla.console.producing import produce_record
from ottla.console.route import Operation
from ottla.console.routes import ROUTES
from ottla.record.builder import RecordData

from ..console.browsing import Answer, Browser
from .forms import Page

TOPIC, GROUP, USER, SUBSCRIPTION = "rights", "rights group", "mallory", "rights subscription"
ACL = {
    "type": "topic",
    "name": "rights",
    "pattern": "literal",
    "principal": "User:eve",
    "host": "*",
    "operation": "read",
    "permission": "allow",
}
CHANGES: dict[str, tuple[str | None, str, dict[str, str]]] = {
    # name of the row: page with its form, address of the form, and the fields that the user fills in
    "topic new": (None, "/create-topic", {"name": "rights-new"}),
    "produce": (None, f"/topics/{TOPIC}/produce", {"value": "x", "partition": "0"}),
    "settings apply": (
        f"/topics/{TOPIC}/settings/preview?name=retention.ms&operation=set&value=12345",
        f"/topics/{TOPIC}/settings/apply",
        {},
    ),
    "topic partitions": (f"/topics/{TOPIC}/manage", f"/topics/{TOPIC}/partitions", {"total": "2"}),
    "clone": (f"/topics/{TOPIC}/clone?name=rights-clone", f"/topics/{TOPIC}/clone", {}),
    "trim": (f"/topics/{TOPIC}/trim?before=2", f"/topics/{TOPIC}/trim", {"confirm": TOPIC}),
    "topic delete": (f"/topics/{TOPIC}/manage", f"/topics/{TOPIC}/delete", {"confirm": TOPIC}),
    "group reset": (
        "/group/reset?" + urlencode({"id": GROUP, "target": "to_earliest"}),
        "/group/reset",
        {"confirm": GROUP},
    ),
    "group delete": ("/group?" + urlencode({"id": GROUP}), "/group/delete", {"confirm": GROUP}),
    "transaction end": (None, "/transaction/end", {"id": "rights-txn", "confirm": "rights-txn"}),
    "user put": (None, "/users", {"name": "eve", "password": "long enough", "mechanism": "SCRAM-SHA-512"}),
    "user remove": (
        "/user/remove?" + urlencode({"name": USER, "mechanism": "SCRAM-SHA-512"}),
        "/user/remove",
        {"confirm": USER},
    ),
    "acl create": (None, "/acls", ACL | {"principal": "User:mallory"}),
    "acl remove": ("/acl/remove?" + urlencode(ACL), "/acl/remove", {"confirm": "User:eve"}),
    "quota set": (None, "/quotas", {"user choice": "default", "producer_byte_rate": "1000"}),
    "subscription set": (
        "/subscription/preview?" + urlencode({"name": SUBSCRIPTION, "metrics": "b.", "interval.ms": "60000"}),
        "/subscription",
        {},
    ),
    "subscription delete": (
        "/subscription?" + urlencode({"name": SUBSCRIPTION}),
        "/subscription/delete",
        {"confirm": SUBSCRIPTION},
    ),
}
DESTROYING = [row.name for row in ROUTES if row.operation is Operation.DESTROY]
APPLIED = [name for name in CHANGES if name != "transaction end"]


@pytest.fixture
def world(admin: Cluster, sign_in) -> Iterator[Browser]:
    """A topic, a group, a user and an ACL that each change would change; the browser of `admin`."""
    browser = sign_in("admin")
    admin.topics.create(TOPIC, 1, 1)
    for number in range(3):
        produce_record(admin, TOPIC, 0, RecordData(1, None, str(number).encode()))
    admin.groups.commit_offsets(GROUP, {(TOPIC, 0): 3})
    admin.users.put(USER, "SCRAM-SHA-512", "password", 4096)
    admin.configs.alter(ResourceType.CLIENT_METRICS, SUBSCRIPTION, [("metrics", ConfigOperation.SET, "a.")])
    assert browser.post("/acls", {"token": browser.token, **ACL}).status == 303
    yield browser
    for name in admin.topics.all():
        if name.startswith("rights"):
            admin.topics.delete([name])
    for listing in admin.groups.find():
        admin.groups.delete(listing.group_id)
    for user in admin.users.all():
        admin.users.remove(user.name, user.mechanism)
    admin.acls.delete([AclFilter(principal="User:eve"), AclFilter(principal="User:mallory")])
    admin.client_metrics.delete(SUBSCRIPTION)
    for quota in admin.quotas.all():
        admin.quotas.alter(list(quota.entity.items()), dict.fromkeys(quota.limits))


def state(admin: Cluster) -> tuple[object, ...]:
    """Everything that a change could change."""
    topics = {name: len(topic.partitions) for name, topic in admin.topics.all().items() if not topic.is_internal}
    kept = TOPIC in topics
    return (
        topics,
        admin.records.offsets_at([(TOPIC, 0)], LATEST_TIMESTAMP) if kept else None,
        admin.records.offsets_at([(TOPIC, 0)], -2) if kept else None,
        admin.configs.describe(ResourceType.TOPIC, TOPIC) if kept else None,
        {each.group_id: admin.groups.offsets(each.group_id) for each in admin.groups.find()},
        admin.users.all(),
        admin.acls.find(AclFilter()),
        admin.quotas.all(),
        admin.client_metrics.all(),
    )


def change(browser: Browser, name: str, shown_to: Browser, **replaced: str) -> Answer:
    """Send the form of a change as `browser`, with the hidden fields that `shown_to` was shown."""
    page, action, entered = CHANGES[name]
    hidden: dict[str, str] = {}
    if page is not None:
        answer = shown_to.get(page)
        assert answer.status == 200, answer.text
        hidden = Page(answer.text).forms[action]
    return browser.post(action, {**hidden, **entered, "token": browser.token, **replaced})


def test_every_change_is_walked():
    assert CHANGES.keys() == {row.name for row in ROUTES if row.operation in (Operation.WRITE, Operation.DESTROY)} - {
        "sign in",
        "sign out",
    }


def test_user_with_lesser_rights_changes_nothing(world, admin, sign_in):
    reader = sign_in("reader")
    before = state(admin)
    for name in CHANGES:
        answer = change(reader, name, world)
        assert answer.status in (403, 404), (name, answer.status, Page(answer.text).content)
    assert state(admin) == before


def test_wrong_typed_name_or_version_destroys_nothing(world, admin):
    before = state(admin)
    for name in DESTROYING:
        assert change(world, name, world, confirm="other").status == 400, name
        if name != "transaction end":
            assert change(world, name, world, version="0" * 20).status == 409, name
    assert state(admin) == before


@pytest.mark.parametrize("name", APPLIED)
def test_change_has_an_effect_for_a_user_with_rights(world, admin, name):
    before = state(admin)
    answer = change(world, name, world)
    assert answer.status == 303, Page(answer.text).content
    assert state(admin) != before
    assert world.get(answer.header("location")).status == 200


def test_changed_topic_refuses_an_older_page(world, admin):
    page = Page(world.get(f"/topics/{TOPIC}/manage").text)
    admin.topics.delete([TOPIC])
    admin.topics.create(TOPIC, 1, 1)
    fields = page.forms[f"/topics/{TOPIC}/delete"] | {"confirm": TOPIC}
    assert world.post(f"/topics/{TOPIC}/delete", fields).status == 409
    assert TOPIC in admin.topics.all()


def test_pages_follow_the_rights_of_the_user(world, sign_in):
    reader = sign_in("reader")
    assert reader.get(f"/topics/{TOPIC}/records").status == 200
    statuses = {page: reader.get(page).status for page in ("/users", "/acls", "/quotas", "/cluster", "/clients")}
    assert statuses == {"/users": 200, "/acls": 200, "/quotas": 403, "/cluster": 200, "/clients": 200}


def test_records_of_a_topic_need_the_right_to_read_it(world, admin, sign_in):
    rule = ACL | {"principal": "User:reader", "permission": "deny"}
    assert world.post("/acls", {"token": world.token, **rule}).status == 303
    reader = sign_in("reader")
    secret = RecordData(1, b"key-1", b"content-1")
    left = [secret]

    def leaves() -> bool:
        """True at the end of the tail, which reads a record that is produced after its start."""
        if left and b"Waiting" in reader.answer.body:
            produce_record(admin, TOPIC, 0, left.pop())
        return b"event: end" in reader.answer.body

    produce_record(admin, TOPIC, 0, secret)
    try:
        for row in ROUTES:
            if row.operation is Operation.READ_RECORDS and row.setting is None:
                path = row.path.format(topic=TOPIC, partition=0, offset=3)
                answer = reader.send("GET", path, leaves=leaves)
                assert answer.status == (200 if row.name in ("export", "tail") else 403), row
                assert b"content-1" not in answer.body, row
    finally:
        admin.acls.delete([AclFilter(principal="User:reader", permission=Permission.DENY)])
