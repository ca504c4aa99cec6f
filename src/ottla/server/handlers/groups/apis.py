"""API table of this package."""

from __future__ import annotations

from ottla.server.handlers.groups.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from ottla.server.handlers.groups.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from ottla.server.handlers.groups.context import GroupContext
from ottla.server.handlers.groups.delete_groups import DELETE_GROUPS
from ottla.server.handlers.groups.describe_groups import DESCRIBE_GROUPS
from ottla.server.handlers.groups.find_coordinator import FIND_COORDINATOR
from ottla.server.handlers.groups.heartbeat import HEARTBEAT
from ottla.server.handlers.groups.join_group import JOIN_GROUP
from ottla.server.handlers.groups.leave_group import LEAVE_GROUP
from ottla.server.handlers.groups.list_groups import LIST_GROUPS
from ottla.server.handlers.groups.offset_commit import OFFSET_COMMIT
from ottla.server.handlers.groups.offset_delete import OFFSET_DELETE
from ottla.server.handlers.groups.offset_fetch import OFFSET_FETCH
from ottla.server.handlers.groups.sync_group import SYNC_GROUP
from ottla.server.handlers.groups.txn_offset_commit import TXN_OFFSET_COMMIT
from ottla.server.requests.api import Api

GROUP_APIS: tuple[Api[GroupContext], ...] = (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
