"""The nesting limit counts parentheses that are open at once."""

from __future__ import annotations

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.model.nesting import MAX_NESTING, require_shallow


@pytest.mark.parametrize(
    "statement",
    ["", ")" * 1000, "(1)+" * 1000, "(" * MAX_NESTING + ")" * MAX_NESTING],
    ids=["empty", "closed", "beside one another", "the most"],
)
def test_shallow_statement_is_accepted(statement: str) -> None:
    require_shallow(statement)


@pytest.mark.parametrize("closed", [0, MAX_NESTING + 1])
def test_deep_statement_is_refused(closed: int) -> None:
    with pytest.raises(OperatorError, match=r"^\[query\] sql has more than 500 parentheses open at once, .* use WITH"):
        require_shallow("(" * (MAX_NESTING + 1) + ")" * closed, "[query] sql")
