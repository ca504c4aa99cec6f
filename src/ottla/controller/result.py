"""What a controller handler is given and what it returns.

A handler is a function of an image and a request: it changes nothing, and returns the records that would make the
change together with the response that is due once they are committed. Records of one result are appended in one batch
and so take effect together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ottla.common.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.metadata.records import ApiMessageAndVersion

Response = TypeVar("Response")

MAX_RECORDS_PER_USER_OP = 10_000
"""Records that one request may cause, as in Apache Kafka: bounds batch, memory and time on the loop."""


class ControllerContext(NamedTuple):
    """What handlers need beside image and request."""

    config: BrokerConfig
    """Static and dynamic settings of the broker in this process; it is the controller's too."""
    directory_id: Uuid
    """Of the one data directory (`meta.properties`)."""
    new_topic_id: Callable[[], Uuid]


class ControllerResult(NamedTuple, Generic[Response]):
    """Records to append, and the response once they are committed."""

    records: list[ApiMessageAndVersion]
    response: Response


def check_record_count(count: int, problem: str = "Unable to perform excessively large batch operation.") -> None:
    """Raises KafkaError POLICY_VIOLATION when a request would cause more than MAX_RECORDS_PER_USER_OP records."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, problem)
