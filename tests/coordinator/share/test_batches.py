"""Combination of state batches, against a list with the state of each offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.kafka.share_state import StateBatch
from ottla.coordinator.share.batches import Batches, combine

OFFSETS = 24

batch_lists = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, min(first + length, OFFSETS - 1), state, count),
        st.integers(0, OFFSETS - 1),
        st.integers(0, 6),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 3),
    ),
    max_size=6,
)


def offsets_of(batches: Batches | list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """(count, state) of each offset: the highest wins."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (batch.delivery_count, batch.state))
    return found


@settings(max_examples=size(150, 5_000), deadline=None)
@given(st.lists(st.tuples(batch_lists, st.integers(0, 4)), max_size=6))
def test_combined_batches_have_the_winning_state_of_each_offset(steps: list[tuple[list[StateBatch], int]]) -> None:
    stored: Batches = ()
    start_offset = 0
    model: dict[int, tuple[int, int]] = {}
    for added, advance in steps:
        start_offset += advance
        before = stored
        stored = combine(stored, added, start_offset)
        model = offsets_of([*before, *added], start_offset)
        assert offsets_of(stored, 0) == model
        for left, right in pairwise(stored):
            assert left.last_offset < right.first_offset
            adjacent = left.last_offset + 1 == right.first_offset
            assert not (adjacent and (left.state, left.delivery_count) == (right.state, right.delivery_count))
        assert combine(stored, added, start_offset) == stored, "a repeated write changes nothing"


def test_many_overlapping_batches_combine_in_a_short_time() -> None:
    added = [StateBatch(first, 20_000 - first, 0, first % 7) for first in range(10_000)]
    combined = combine((), added, -1)
    assert combined[0].first_offset == 0
    assert combined[-1].last_offset == 20_000
