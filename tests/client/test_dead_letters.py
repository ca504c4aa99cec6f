"""Dead letters of share groups as `ottla share redrive` reads them."""

from __future__ import annotations

import pytest

from ottla.client.librdkafka.consumer import ConsumedRecord
from ottla.client.librdkafka.dead_letters import REDRIVEN_FROM, ShareDeadLetter, parse_dead_letter, redriven_record

HEADERS = {"topic": b"jobs", "partition": b"1", "offset": b"7", "group": b"workers", "message": b"Rejected."}


def letter_record(*own: tuple[str, bytes | None], value: bytes | None = b"copy", **changed: bytes) -> ConsumedRecord:
    described = tuple((f"__dlq.errors.{name}", text) for name, text in (HEADERS | changed).items())
    return ConsumedRecord("dlq.jobs", 0, 17, 1000, "CreateTime", None, value, (*own, *described))


def letter(*own: tuple[str, bytes | None], value: bytes | None = b"copy", **changed: bytes) -> ShareDeadLetter:
    found = parse_dead_letter(letter_record(*own, value=value, **changed))
    assert found is not None
    return found


def source(*headers: tuple[str, bytes | None]) -> ConsumedRecord:
    return ConsumedRecord("jobs", 1, 7, 500, "CreateTime", b"k", b"v", headers)


def test_last_header_of_a_name_describes_the_failed_record() -> None:
    """A failed record may be a dead letter itself."""
    found = letter(("__dlq.errors.topic", b"other"), ("__dlq.errors.timestamp", b"500"))
    assert found[1:] == ("jobs", 1, 7, "workers", "Rejected.", 500)


@pytest.mark.parametrize(
    "changed", [{"topic": b""}, {"partition": b"-1"}, {"offset": b"x"}, {"offset": b"9" * 20}, {"partition": b""}]
)
def test_unreadable_headers_are_not_of_a_dead_letter(changed: dict[str, bytes]) -> None:
    assert parse_dead_letter(letter_record(**changed)) is None


def test_redriven_record_names_its_last_dead_letter() -> None:
    sent = redriven_record(letter(timestamp=b"500"), source(("a", None), (REDRIVEN_FROM, b"dlq.jobs-0@3")))
    assert sent == (b"k", b"v", (("a", None), (REDRIVEN_FROM, b"dlq.jobs-0@17")))


def test_copy_replaces_a_record_that_is_another_or_missing() -> None:
    copied = (None, b"copy", (("a", b"x"), (REDRIVEN_FROM, b"dlq.jobs-0@17")))
    assert redriven_record(letter(("a", b"x"), timestamp=b"499"), source()) == copied
    assert redriven_record(letter(("a", b"x")), None) == copied
    assert redriven_record(letter(value=None), None) is None
