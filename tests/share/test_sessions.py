"""Share sessions: epochs, limits, partitions, connections."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.share.sessions import MAX_EPOCH, ShareSessionCache

TOPIC = b"t" * 16
KEY = ("group", "member")


def named(*indexes: int) -> list[tuple[bytes, int]]:
    return [(TOPIC, index) for index in indexes]


def code_of(call) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


def test_each_request_has_the_next_epoch() -> None:
    cache = ShareSessionCache()
    session = cache.open(KEY, 1, named(0), max_sessions=1)
    cache.resume(KEY, 1)
    assert code_of(lambda: cache.resume(KEY, 1)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = MAX_EPOCH
    cache.resume(KEY, MAX_EPOCH)
    assert session.epoch == 1
    assert code_of(lambda: cache.resume(("group", "other"), 1)) == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_full_cache_refuses_other_members() -> None:
    cache = ShareSessionCache()
    cache.open(KEY, 1, named(0, 1), max_sessions=1)
    other = code_of(lambda: cache.open(("group", "other"), 2, named(0), max_sessions=1))
    assert other == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    cache.open(KEY, 2, named(0), max_sessions=1)
    assert (len(cache), cache.partition_count()) == (1, 1)


def test_partitions_take_turns_to_be_first() -> None:
    session = ShareSessionCache().open(KEY, 1, named(0, 1, 2), max_sessions=1)
    firsts = []
    for _ in range(3):
        firsts.append(session.rotated()[0][1])
        session.next_epoch()
    assert sorted(firsts) == [0, 1, 2]


def test_partition_forgotten_with_acknowledgements_is_not_kept() -> None:
    """Trap 4: a partition that a request names only to acknowledge does not stay in the session."""
    cache = ShareSessionCache()
    session = cache.open(KEY, 1, named(0), max_sessions=1)
    cache.resume(KEY, 1, named(1), named(1))
    assert list(session.partitions) == named(0)
    cache.resume(KEY, 2, named(2), named(0))
    assert list(session.partitions) == named(2)
    assert cache.partition_count() == 1


def test_session_ends_with_its_own_connection() -> None:
    cache = ShareSessionCache()
    cache.open(KEY, 1, named(0), max_sessions=1)
    cache.open(KEY, 2, named(0), max_sessions=1)
    assert cache.connection_closed(1) == []
    assert cache.connection_closed(2) == [KEY]
    assert (len(cache), cache.partition_count(), cache.evictions) == (0, 0, 1)
