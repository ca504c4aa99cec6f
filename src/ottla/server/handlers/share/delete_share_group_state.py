"""DeleteShareGroupState (86): version 0. The group coordinator deletes states (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.state_requests import state_api

DELETE_SHARE_GROUP_STATE = state_api(
    ApiKey.DELETE_SHARE_GROUP_STATE, DeleteShareGroupStateResponse, DeleteStateResult, PartitionResult
)
