"""ReadShareGroupStateSummary (87): versions 0 and 1. The group coordinator reads offsets (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.share.state_requests import state_api

READ_SHARE_GROUP_STATE_SUMMARY = state_api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, ReadShareGroupStateSummaryResponse, ReadStateSummaryResult, PartitionResult
)
