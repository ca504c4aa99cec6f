"""DeleteTopics (key 20).

Up to 5 by `topic_names`; 6 by `topics`, each with a name or an id (KIP-516). 4 is flexible, 5 has error messages and
may return THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class DeleteTopicState:
    name: str | None = f(STRING, "0+", nullable="0+", default=None)
    topic_id: bytes = f(UUID, "0+")


@message("1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = f(array(DeleteTopicState), "6+")
    topic_names: list[str] = f(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = f(INT32, "0+")


@struct
class DeletableTopicResult:
    name: str | None = f(STRING, "0+", nullable="6+")
    topic_id: bytes = f(UUID, "6+", ignorable=True)
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "5+", nullable="5+", default=None, ignorable=True)


@message("1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    responses: list[DeletableTopicResult] = f(array(DeletableTopicResult), "0+")


SPEC = ApiSpec(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse)
