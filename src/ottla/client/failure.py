"""Error codes of responses as exceptions with a sentence that names the thing."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError


class TopicNotFound(KafkaError):
    """Metadata knows no such topic; asking again would not help."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        what = "does not exist" if partition is None else f"has no partition {partition}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} {what}")


def response_error(code: int, subject: str, message: str | None = None) -> KafkaError:
    """The exception for a code other than NONE; `message` is the broker's own, where the response has one."""
    try:
        known = ErrorCode(code)
        words = known.name.lower().replace("_", " ")
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        words = f"error {code}"
    return KafkaError(known, f"{subject}: {(message or words).rstrip('.')}")


def raise_for(code: int, subject: str, message: str | None = None) -> None:
    """Raise `response_error` unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise response_error(code, subject, message)
