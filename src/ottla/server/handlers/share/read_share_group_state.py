"""ReadShareGroupState (84): version 0. A new leader reads states, and fences older ones (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.read_share_group_state import PartitionResult, ReadShareGroupStateResponse, ReadStateResult
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.state_requests import state_api

READ_SHARE_GROUP_STATE = state_api(
    ApiKey.READ_SHARE_GROUP_STATE, ReadShareGroupStateResponse, ReadStateResult, PartitionResult
)
