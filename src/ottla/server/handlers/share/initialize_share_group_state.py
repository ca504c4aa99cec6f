"""InitializeShareGroupState (83): version 0. The group coordinator creates or resets states (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.state_requests import state_api

INITIALIZE_SHARE_GROUP_STATE = state_api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupStateResponse, InitializeStateResult, PartitionResult
)
