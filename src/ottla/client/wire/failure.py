"""Exceptions for error codes of responses, with the affected resource in the message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid, uuid_to_string
from ottla.common.suggestion import did_you_mean

_WAYS_OUT = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on the brokers",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "authenticate as a user, not anonymously or with a token",
    ErrorCode.KAFKA_STORAGE_ERROR: "its data directory is offline: check the log of the broker",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on the brokers",
}
"""Remedies for some error codes."""


class TopicNotFound(KafkaError):
    """Metadata has no such topic, and a retry would not help. A similar one of the `known` topics is suggested."""

    def __init__(self, topic: str, partition: int | None = None, *, known: Iterable[str] = ()) -> None:
        self.hint = did_you_mean(topic, known) if partition is None else ""
        reason = f"does not exist{self.hint}" if partition is None else f"has no partition {partition}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} {reason}")


class TopicReplaced(KafkaError):
    """The topic of that name has another id than the requested one: it was deleted and created again."""

    def __init__(self, topic: str, wanted: Uuid, found: Uuid) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {topic!r} was deleted and created again: its id has changed from {uuid_to_string(wanted)} to "
            f"{uuid_to_string(found)}",
        )


def error_words(code: int) -> str:
    """The name of an error code as words; its number if it is unknown."""
    try:
        return ErrorCode(code).name.lower().replace("_", " ")
    except ValueError:
        return f"error {code}"


def response_error(code: int, subject: str, message: str | None = None) -> KafkaError:
    """The exception for an error code; `message` is that of the broker, if the response has one."""
    found = ErrorCode.for_code(code)
    way_out = f"; {_WAYS_OUT[found]}" if found in _WAYS_OUT else ""
    return KafkaError(found, f"{subject}: {(message or error_words(code)).rstrip('.')}{way_out}")


def raise_all(failures: Sequence[KafkaError]) -> None:
    """Raise one KafkaError with the code of the first failure and all messages; nothing without failures."""
    if failures:
        raise KafkaError(failures[0].code, "; ".join(failure.message for failure in failures))


def raise_for(code: int, subject: str, message: str | None = None) -> None:
    """Raise `response_error` unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise response_error(code, subject, message)
