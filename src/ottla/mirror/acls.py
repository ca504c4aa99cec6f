"""ACLs of the topics that are copied, as Apache Kafka's MirrorMaker 2 takes them along: who may read there may read
here, and nobody gets to write beside the mirror.

Only those that name one topic literally go along; of them what allows WRITE does not, and what allows everything allows
READ. Nothing is ever taken away in the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.acls import AclFilter
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.outage import Tell
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType

OF_TOPICS = AclFilter(resource_type=ResourceType.TOPIC, pattern_type=PatternType.LITERAL)
NOT_ALLOWED = frozenset({ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


def copied_acls(acls: Iterable[Acl], names: Mapping[str, str]) -> set[Acl]:
    """What the target's topics get; `names` are those that topics of the source have there."""
    found: set[Acl] = set()
    for acl in acls:
        is_of_topic = acl.resource_type == ResourceType.TOPIC and acl.pattern_type == PatternType.LITERAL
        allows = acl.operation if acl.permission == Permission.ALLOW else None
        if is_of_topic and acl.resource_name in names and allows != AclOperation.WRITE:
            operation = AclOperation.READ if allows == AclOperation.ALL else acl.operation
            found.add(acl._replace(resource_name=names[acl.resource_name], operation=operation))
    return found


class AclMirror:
    """Remembers only what it told already."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: set[ErrorCode] = set()

    def copy(self, source: Cluster, target: Cluster, names: Mapping[str, str]) -> None:
        """Add what the target lacks; where one of both has no ACLs or lets nobody see them, a sentence says so, once.

        Raises KafkaError, BrokerUnreachable.
        """
        try:
            missing = copied_acls(source.acls(OF_TOPICS), names) - set(target.acls(OF_TOPICS))
            if missing:
                target.create_acls(sorted(missing))
        except KafkaError as error:
            if error.code not in NOT_ALLOWED:
                raise
            if error.code not in self._told:
                self._told.add(error.code)
                self._tell(f"ACLs are not copied: {error.message}")
