"""The authorizer: super users, missing metadata, cached decisions, audit log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.common.kafka.acl import Acl, AclOperation, ResourceType
from ottla.common.kafka.ids import Uuid
from ottla.common.logs import AUDIT_LOGGER
from ottla.security import authorizer
from ottla.security.authorizer import StandardAuthorizer, log_changes

from .test_acl_index import ALICE, BOB, HOST, acl

ROOT = "User:root"


class Known:
    """The metadata as passed to the authorizer."""

    def __init__(self, *acls: Acl) -> None:
        self.acls: Mapping[Uuid, Acl] | None = {}
        self.set(*acls)

    def set(self, *acls: Acl) -> None:
        self.acls = {bytes([place]) * 16: each for place, each in enumerate(acls)}


def asks(known: Known, *, allow_without_acls: bool = False) -> StandardAuthorizer:
    return StandardAuthorizer(lambda: known.acls, [ROOT], allow_without_acls=allow_without_acls)


def reads(asked: StandardAuthorizer, principal: str = ALICE, name: str = "t", **more: Any) -> bool:
    return asked.allows(principal, HOST, AclOperation.READ, ResourceType.TOPIC, name, request="Fetch", **more)


def test_decisions_follow_the_newest_acls() -> None:
    known = Known(acl())
    asked = asks(known)
    for _ in range(2):
        assert reads(asked)
        assert not reads(asked, BOB)
    known.set(acl(principal=BOB))
    assert not reads(asked)
    assert reads(asked, BOB)
    known.set()
    assert not reads(asked, BOB)


def test_super_users_need_no_acl_and_no_metadata() -> None:
    known = Known()
    known.acls = None
    asked = asks(known, allow_without_acls=True)
    assert reads(asked, ROOT)
    assert asked.allows_any(ROOT, HOST, AclOperation.WRITE, ResourceType.TOPIC, request="InitProducerId")
    # An authorizer without metadata cannot know whether ACLs exist.
    assert not reads(asked)
    assert not asked.allows_any(ALICE, HOST, AclOperation.WRITE, ResourceType.TOPIC, request="InitProducerId")
    known.set()
    assert reads(asked)
    assert asked.allows_any(ALICE, HOST, AclOperation.WRITE, ResourceType.TOPIC, request="InitProducerId")


def test_decision_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "MAX_REMEMBERED", 3)
    asked = asks(Known(acl("t5")))
    assert [reads(asked, name=f"t{index}") for index in range(8)] == [index == 5 for index in range(8)]
    assert len(asked._remembered) <= 3


def audit_lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    lines = [
        record.getMessage() for record in caplog.records if record.name == AUDIT_LOGGER and record.levelno >= level
    ]
    caplog.clear()
    return lines


def test_denials_and_changes_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=AUDIT_LOGGER)
    asked = asks(Known(acl(), acl(operation=AclOperation.CREATE)))
    assert not reads(asked, BOB)
    assert audit_lines(caplog) == [
        "Principal = User:bob is Denied operation = READ from host = 10.1.2.3 on resource = Topic:LITERAL:t for "
        "request = Fetch based on rule DefaultDeny"
    ]
    assert not reads(asked, BOB, audit=False)
    assert reads(asked)
    assert audit_lines(caplog) == []
    assert asked.allows(ALICE, HOST, AclOperation.CREATE, ResourceType.TOPIC, "t", request="CreateTopics")
    (line,) = audit_lines(caplog)
    assert "User:alice is Allowed operation = CREATE" in line
    assert "principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW" in line
    assert reads(asked, ROOT)
    (line,) = audit_lines(caplog, logging.DEBUG)
    assert line.endswith("based on rule SuperUser")


def test_name_cannot_forge_an_audit_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=AUDIT_LOGGER)
    assert not reads(asks(Known()), name="a\nPrincipal = User:root is Allowed\x1b[2K")
    (line,) = audit_lines(caplog)
    assert line.isprintable()


def test_audit_log_of_one_request_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    long = Acl(ResourceType.TOPIC, "t" * 1000, 3, "User:" + "p" * 1000, "*", AclOperation.READ, 3)
    log_changes("User:" + "e" * 1000, "127.0.0.1", "adds", [long] * 10_000)
    assert len(caplog.messages) == 21
    assert caplog.messages[-1].endswith("adds 9980 more ACLs")
    assert sum(map(len, caplog.messages)) < 30_000
