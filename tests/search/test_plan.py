"""Resume tokens."""

from __future__ import annotations

import pytest

from ottla.common.errors import OperatorError
from ottla.search.plan import OffsetRange, Plan, read_token, write_token
from ottla.search.subject import Decoders


def test_token_contains_the_whole_plan():
    plan = Plan(
        "t",
        'value.a == "é" from',
        {0: OffsetRange(1, 2, 3), 7: OffsetRange(0, 2**63 - 1)},
        newest_first=True,
        isolation="committed",
        decoders=Decoders("integer", "json"),
        topic_id="bX-s",
        before=(5, 0, 9),
    )
    assert read_token(write_token(plan)) == plan


@pytest.mark.parametrize("change", ["", "x", "é", "eJw", "token cut", "another decoder"])
def test_invalid_token_is_refused(change):
    token = write_token(Plan("t", "a", {0: OffsetRange(1, 2)}))
    if change == "token cut":
        change = token[:-5]
    elif change == "another decoder":
        change = write_token(Plan("t", "a", {}, decoders=Decoders("x", "y")))
    with pytest.raises(OperatorError, match="resume token"):
        read_token(change)
