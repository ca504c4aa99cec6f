"""Error codes of other programs."""

from __future__ import annotations

from ottla.common.errors import ErrorCode


def test_a_number_that_is_not_known_is_an_unknown_error() -> None:
    assert ErrorCode.for_code(ErrorCode.FENCED_INSTANCE_ID) is ErrorCode.FENCED_INSTANCE_ID
    assert ErrorCode.for_code(0) is ErrorCode.NONE
    assert ErrorCode.for_code(32_767) is ErrorCode.UNKNOWN_SERVER_ERROR
