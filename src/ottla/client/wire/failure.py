"""Error codes of responses as exceptions with a sentence that names the thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid, uuid_to_string
from ottla.common.suggestion import did_you_mean

_WAYS_OUT = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on the brokers",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in as a user for it, not anonymously and not by a token",
    ErrorCode.KAFKA_STORAGE_ERROR: "its broker can't use the data directory that has it, and says in its log why",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name on the brokers",
}
"""Of those codes that say it all."""


class TopicNotFound(KafkaError):
    """Metadata knows no such topic; asking again would not help. Of those that are `known` one may have been meant."""

    def __init__(self, topic: str, partition: int | None = None, *, known: Iterable[str] = ()) -> None:
        self.hint = did_you_mean(topic, known) if partition is None else ""
        what = f"does not exist{self.hint}" if partition is None else f"has no partition {partition}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} {what}")


class TopicReplaced(KafkaError):
    """The topic of that name has another id than the one that was asked for: it was deleted and created again."""

    def __init__(self, topic: str, wanted: Uuid, found: Uuid) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {topic!r} was deleted and created again: its id was {uuid_to_string(wanted)} and is "
            f"{uuid_to_string(found)} now",
        )


def error_words(code: int) -> str:
    """The name of an error code as words; its number when it is not known here."""
    try:
        return ErrorCode(code).name.lower().replace("_", " ")
    except ValueError:
        return f"error {code}"


def response_error(code: int, subject: str, message: str | None = None) -> KafkaError:
    """The exception for a code other than NONE; `message` is the broker's own, where the response has one."""
    found = ErrorCode.for_code(code)
    way_out = f"; {_WAYS_OUT[found]}" if found in _WAYS_OUT else ""
    return KafkaError(found, f"{subject}: {(message or error_words(code)).rstrip('.')}{way_out}")


def raise_all(failures: Sequence[KafkaError]) -> None:
    """Raise one KafkaError, of the first one's code, that says what all of them do; none where there are none."""
    if failures:
        raise KafkaError(failures[0].code, "; ".join(failure.message for failure in failures))


def raise_for(code: int, subject: str, message: str | None = None) -> None:
    """Raise `response_error` unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise response_error(code, subject, message)
