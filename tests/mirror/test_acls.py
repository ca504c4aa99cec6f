"""Selection of ACLs to copy: the rules of Apache Kafka's MirrorMaker 2."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.client.admin.acls import AclFilter
from ottla.client.admin.cluster import Cluster
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.mirror.acls import AclMirror, copied_acls

READ = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "10.0.0.1", AclOperation.READ, Permission.ALLOW)
NAMES = {"t": "eu.t"}


@pytest.mark.parametrize(
    ("acl", "operation"),
    [
        (READ, AclOperation.READ),
        (READ._replace(operation=AclOperation.DESCRIBE), AclOperation.DESCRIBE),
        (READ._replace(operation=AclOperation.ALL), AclOperation.READ),
        (READ._replace(operation=AclOperation.WRITE), None),
        (READ._replace(operation=AclOperation.WRITE, permission=Permission.DENY), AclOperation.WRITE),
        (READ._replace(operation=AclOperation.ALL, permission=Permission.DENY), AclOperation.ALL),
        (READ._replace(pattern_type=PatternType.PREFIXED), None),
        (READ._replace(resource_name="*"), None),
        (READ._replace(resource_name="another"), None),
        (READ._replace(resource_type=ResourceType.GROUP), None),
    ],
)
def test_read_acls_are_copied_without_write(acl: Acl, operation: AclOperation | None) -> None:
    wanted = set() if operation is None else {acl._replace(resource_name="eu.t", operation=operation)}
    assert copied_acls([acl], NAMES) == wanted


class Answers:
    """A cluster with these ACLs, or one that denies access."""

    def __init__(self, *acls: Acl, refusal: ErrorCode | None = None) -> None:
        self.there = list(acls)
        self.created: list[Acl] = []
        self._refusal = refusal

    @property
    def acls(self) -> Answers:
        """The cluster is its own service."""
        return self

    def find(self, wanted: AclFilter) -> list[Acl]:
        if self._refusal is not None:
            raise KafkaError(self._refusal, "no")
        return self.there + self.created

    def create(self, added: list[Acl]) -> None:
        self.created += added


def copy(mirror: AclMirror, source: Answers, target: Answers) -> None:
    mirror.copy(cast(Cluster, source), cast(Cluster, target), NAMES)


def test_existing_target_acls_are_not_created_again() -> None:
    described = READ._replace(operation=AclOperation.DESCRIBE)
    target = Answers(described._replace(resource_name="eu.t"))
    notices: list[str] = []
    mirror = AclMirror(notices.append)
    for _ in range(2):
        copy(mirror, Answers(READ, described), target)
        assert target.created == [READ._replace(resource_name="eu.t")]
    assert notices == []


@pytest.mark.parametrize("code", [ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("side", [0, 1])
def test_where_it_is_not_allowed_a_sentence_says_so_once(code: ErrorCode, side: int) -> None:
    notices: list[str] = []
    mirror = AclMirror(notices.append)
    ends: Any = [Answers(READ), Answers()]
    ends[side] = Answers(READ, refusal=code)
    for _ in range(2):
        copy(mirror, *ends)
    assert notices == ["ACLs are not copied: no"]
    ends[side] = Answers(READ, refusal=ErrorCode.REQUEST_TIMED_OUT)
    with pytest.raises(KafkaError):
        copy(mirror, *ends)
