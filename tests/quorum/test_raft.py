"""Raft's rules without files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import InvariantError
from ottla.quorum.raft import (
    MAX_LEADER_EPOCH,
    ElectionState,
    LeaderState,
    Voter,
    decode_election_state,
    elect_single_voter,
    encode_election_state,
)

ME = Voter(1, b"D" * 16, ())


@pytest.mark.parametrize(
    ("stored", "log_epoch", "expected"),
    [(None, -1, 1), (None, 4, 5), (ElectionState(7), 4, 8), (ElectionState(2), 4, 5)],
)
def test_epoch_is_above_all_that_were(stored: ElectionState | None, log_epoch: int, expected: int) -> None:
    state = elect_single_voter(stored, log_epoch, 1, b"D" * 16, [ME])
    assert state == ElectionState(expected, 1, 1, b"D" * 16)


def test_no_election_among_others_and_without_epochs() -> None:
    with pytest.raises(InvariantError):
        elect_single_voter(None, 0, 1, b"D" * 16, [ME, Voter(2, b"E" * 16, ())])
    with pytest.raises(InvariantError):
        elect_single_voter(ElectionState(MAX_LEADER_EPOCH), 0, 1, b"D" * 16, [ME])


@given(
    st.builds(
        ElectionState,
        st.integers(0, MAX_LEADER_EPOCH),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**31 - 1),
        st.binary(min_size=16, max_size=16),
    )
)
def test_state_survives_its_file(state: ElectionState) -> None:
    assert decode_election_state(encode_election_state(state)) == state


def test_version_0_is_read() -> None:
    data = (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":9,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":3}],"data_version":0}'
    )
    assert decode_election_state(data) == ElectionState(9, 3, -1)


def test_high_watermark_needs_a_majority_and_a_record_of_the_epoch() -> None:
    leader = LeaderState(5, 100, [1, 2, 3], 90)
    assert not leader.update_end_offset(1, 110)
    assert not leader.update_end_offset(2, 100)
    assert leader.high_watermark == 90
    assert leader.update_end_offset(2, 101)
    assert leader.high_watermark == 101
    assert leader.update_end_offset(3, 105)
    assert leader.high_watermark == 105
    with pytest.raises(InvariantError):
        leader.update_end_offset(4, 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=60))
def test_high_watermark_never_goes_back_nor_ahead_of_a_majority(steps: list[tuple[int, int]]) -> None:
    leader = LeaderState(1, 0, range(5))
    offsets = [0] * 5
    high_watermark = 0
    for voter, offset in steps:
        offsets[voter] = max(offsets[voter], offset)
        leader.update_end_offset(voter, offsets[voter])
        assert leader.high_watermark >= high_watermark
        high_watermark = leader.high_watermark
        assert sum(offset >= high_watermark for offset in offsets) >= 3
