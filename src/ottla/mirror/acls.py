"""ACLs of mirrored topics, like Apache Kafka's MirrorMaker 2: principals with read access in the source get it in the
target, and only the mirror may write.

Only ACLs with a literal topic name are copied. Permissions for WRITE are omitted, and permissions for all operations
are copied as READ. ACLs of the target are never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.acls import AclFilter
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.outage import Notify
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType

OF_TOPICS = AclFilter(resource_type=ResourceType.TOPIC, pattern_type=PatternType.LITERAL)
NOT_ALLOWED = frozenset({ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


def copied_acls(acls: Iterable[Acl], names: Mapping[str, str]) -> set[Acl]:
    """The ACLs for topics of the target; `names` are the target names by source name."""
    found: set[Acl] = set()
    for acl in acls:
        is_of_topic = acl.resource_type == ResourceType.TOPIC and acl.pattern_type == PatternType.LITERAL
        allows = acl.operation if acl.permission == Permission.ALLOW else None
        if is_of_topic and acl.resource_name in names and allows != AclOperation.WRITE:
            operation = AclOperation.READ if allows == AclOperation.ALL else acl.operation
            found.add(acl._replace(resource_name=names[acl.resource_name], operation=operation))
    return found


class AclMirror:
    """Copies ACLs. Its only state is the last message."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._reported: set[ErrorCode] = set()

    def copy(self, source: Cluster, target: Cluster, names: Mapping[str, str]) -> None:
        """Add ACLs that the target lacks; reports once if a cluster has no authorizer or denies reading ACLs.

        Raises KafkaError, BrokerUnreachable.
        """
        try:
            missing = copied_acls(source.acls.find(OF_TOPICS), names) - set(target.acls.find(OF_TOPICS))
            if missing:
                target.acls.create(sorted(missing))
        except KafkaError as error:
            if error.code not in NOT_ALLOWED:
                raise
            if error.code not in self._reported:
                self._reported.add(error.code)
                self._notify(f"ACLs are not copied: {error.message}")
