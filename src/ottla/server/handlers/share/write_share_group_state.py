"""WriteShareGroupState (85): versions 0 and 1. A leader stores acknowledgements (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.state_requests import state_api

WRITE_SHARE_GROUP_STATE = state_api(
    ApiKey.WRITE_SHARE_GROUP_STATE, WriteShareGroupStateResponse, WriteStateResult, PartitionResult
)
