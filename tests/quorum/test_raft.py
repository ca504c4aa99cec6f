"""Raft's rules without files: the state that survives, the leader's arithmetic, and conversations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.rng import SimRng

from ottla.common.errors import ErrorCode, InvariantError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.quorum.election_file import decode_configured_voters, decode_election_state, encode_election_state
from ottla.quorum.raft import Raft
from ottla.quorum.raft_leader import MAX_OBSERVERS, LeaderState
from ottla.quorum.raft_roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.quorum.raft_types import (
    FORGOTTEN_EPOCHS,
    MAX_LEADER_EPOCH,
    ElectionState,
    OffsetAndEpoch,
    Peer,
    Persist,
    ReplicaKey,
    SendBegin,
    SendEnd,
    SendVote,
    Timeouts,
    Voter,
)
from ottla.quorum.raft_voters import BOOTSTRAP_OFFSET, VoterSets
from ottla.quorum.voter_changes import voter_change_error

from .raft_world import Entry, MemoryLog


def voter(node_id: int) -> Voter:
    return Voter(node_id, bytes([node_id]) * 16, (("CONTROLLER", "host", node_id),))


def replica(node_id: int = 1, voters: int = 3, stored: ElectionState | None = None, epochs: str = "") -> Raft:
    """Node `node_id` of that many voters, with a log of one entry for each digit of `epochs`, started at time 0."""
    sets = VoterSets()
    if voters:
        sets.add(BOOTSTRAP_OFFSET, tuple(voter(index + 1) for index in range(voters)))
    log = MemoryLog()
    log.entries = [Entry(int(epoch), index) for index, epoch in enumerate(epochs)]
    raft = Raft(voter(node_id).key, log, SimRng(1), Timeouts(), sets, 0)
    raft.elections.start(0.0, stored)
    return raft


def effects(raft: Raft) -> list[Any]:
    taken, raft.state.effects = raft.state.effects, []
    return list(taken)


def to_prospective(raft: Raft) -> float:
    """Let the time pass until it asks for pre-votes; the time."""
    now = raft.elections.deadline
    assert now is not None
    raft.elections.tick(now)
    assert isinstance(raft.state.role, Prospective)
    return now


def grant(raft: Raft, now: float, node_id: int, *, granted: bool = True) -> None:
    """Answer the vote that was asked of `node_id`."""
    asked = [effect for effect in raft.state.effects if isinstance(effect, SendVote) and effect.to.voter_id == node_id][
        -1
    ]
    peer = Peer(LeaderAndEpoch(NO_NODE, asked.epoch))
    raft.elections.vote_answered(now, voter(node_id).key, asked, ErrorCode.NONE, peer, granted=granted)


def to_candidate(raft: Raft) -> tuple[float, Candidate]:
    """The same until node 2 has given its pre-vote; the time, and the new role."""
    now = to_prospective(raft)
    grant(raft, now, 2)
    assert isinstance(raft.state.role, Candidate)
    return now, raft.state.role


def elected(raft: Raft) -> float:
    now, _ = to_candidate(raft)
    grant(raft, now, 2)
    assert raft.state.leading is not None
    return now


# -- quorum-state ----------------------------------------------------------------------------------------------------


@given(
    st.builds(
        ElectionState,
        st.integers(0, MAX_LEADER_EPOCH),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**31 - 1),
        st.binary(min_size=16, max_size=16),
        st.just(False),
    )
)
def test_state_survives_its_file(state: ElectionState) -> None:
    assert decode_election_state(encode_election_state(state)) == state


def test_configured_voters_are_written_in_version_0() -> None:
    data = encode_election_state(ElectionState(9, 3, -1), [voter(3)])
    assert data.startswith(
        b'{"clusterId":"","leaderId":3,"leaderEpoch":9,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":3}],"data_version":0,"checksum":"'
    )


@pytest.mark.parametrize("configured", [[], [voter(1), voter(3)]])
def test_every_flipped_bit_is_detected_or_harmless(configured: list[Voter]) -> None:
    state = ElectionState(1234567, 3) if configured else ElectionState(1234567, 3, 3, voter(3).directory_id)
    data = encode_election_state(state, configured)
    found = 0
    for position in range(len(data)):
        for bit in range(8):
            spoiled = bytearray(data)
            spoiled[position] ^= 1 << bit
            try:
                assert decode_election_state(bytes(spoiled)) == state
                if configured:
                    assert decode_configured_voters(bytes(spoiled)) == (1, 3)
            except ValueError:
                found += 1
    assert found > 7 * len(data)


def test_version_0_is_read() -> None:
    data = (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":9,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":3}],"data_version":0}'
    )
    assert decode_election_state(data) == ElectionState(9, 3, -1)


# -- damage ----------------------------------------------------------------------------------------------------------


def damaged(epochs: str, stored: ElectionState | None = None, forgotten: int | None = None) -> Raft:
    """Node 1 of three, with that log, and in need of catching up."""
    raft = replica(epochs=epochs)
    raft.state.effects.clear()
    raft.elections.start(0.0, stored, forgotten=forgotten, must_catch_up=forgotten is None)
    return raft


def ask_for_vote(raft: Raft, epoch: int, *, pre_vote: bool = False) -> bool:
    last = OffsetAndEpoch(1000, epoch - 1)
    error, granted = raft.requests.vote(50.0, raft.state.local, voter(2).key, epoch, last, pre_vote=pre_vote)
    assert error is ErrorCode.NONE
    return granted


def follow(raft: Raft, epoch: int, high_watermark: int) -> None:
    """A response of node 2, which leads `epoch`; its records are on disk."""
    log = raft.state.log
    assert isinstance(log, MemoryLog)
    log.flushed = log.end_offset
    peer = Peer(LeaderAndEpoch(2, epoch), None)
    raft.replication.fetch_answered(60.0, epoch, ErrorCode.NONE, peer)
    raft.replication.leader_says(high_watermark)


def test_replica_with_lost_records_neither_votes_nor_stands() -> None:
    raft = damaged("1112", ElectionState(4, leader_id=2))
    assert raft.elections.deadline is None
    raft.elections.tick(100.0)
    assert effects(raft) == []
    assert not ask_for_vote(raft, 5, pre_vote=True)
    assert not ask_for_vote(raft, 5)
    assert not raft.state.may_stand


@pytest.mark.parametrize(
    ("epochs", "high_watermark", "caught_up"),
    [
        ("1112", 4, False),  # the leader has committed nothing of its epoch
        ("11124", 4, False),  # nor here
        ("11124", 6, False),  # there is more
        ("11124", 5, True),
    ],
)
def test_replica_votes_again_with_all_committed_records(epochs: str, high_watermark: int, caught_up: bool) -> None:
    raft = damaged(epochs, ElectionState(4, leader_id=2))
    follow(raft, 4, high_watermark)
    assert raft.state.election.must_catch_up is not caught_up
    assert (Persist(raft.state.election) in effects(raft)) is caught_up
    raft.requests.end_quorum_epoch(70.0, LeaderAndEpoch(2, 4), ())
    assert ask_for_vote(raft, 5) is caught_up


def test_unsynced_records_do_not_count_as_caught_up() -> None:
    raft = damaged("11124", ElectionState(4, leader_id=2))
    follow(raft, 4, 3)
    log = raft.state.log
    assert isinstance(log, MemoryLog)
    log.flushed = 4
    raft.replication.leader_says(5)
    assert raft.state.election.must_catch_up
    log.flushed = 5
    raft.replication.leader_says(5)
    assert not raft.state.election.must_catch_up


def test_lost_votes_continue_above_every_possible_vote() -> None:
    for forgotten, last in ((0, 2), (77, 77)):
        raft = damaged("1112", None, forgotten)
        assert raft.state.epoch == last + FORGOTTEN_EPOCHS
        assert effects(raft) == [Persist(ElectionState(raft.state.epoch, must_catch_up=True))]
        assert not ask_for_vote(raft, raft.state.epoch + 1)


def test_single_voter_need_not_catch_up() -> None:
    raft = replica(voters=1, epochs="1")
    raft.elections.start(0.0, ElectionState(1), must_catch_up=True)
    assert raft.state.leading is not None
    assert not raft.state.election.must_catch_up


# -- the leader ------------------------------------------------------------------------------------------------------


def leader_of(size: int, start: int, high_watermark: int) -> LeaderState:
    voters = [voter(index + 1) for index in range(size)]
    return LeaderState(voters[0].key, 5, start, voters, high_watermark, 0.0)


def test_high_watermark_needs_majority_and_record_of_epoch() -> None:
    leader = leader_of(3, 100, 90)
    assert not leader.flushed(110)
    assert not leader.fetched(voter(2).key, 100, 110, 1.0, 1)
    assert leader.high_watermark == 90
    assert leader.fetched(voter(2).key, 101, 110, 1.0, 1)
    assert leader.high_watermark == 101
    assert leader.fetched(voter(3).key, 105, 110, 1.0, 1)
    assert leader.high_watermark == 105


def test_observers_and_other_directories_do_not_count() -> None:
    leader = leader_of(3, 0, 0)
    leader.flushed(10)
    assert not leader.fetched(voter(4).key, 10, 10, 1.0, 1)
    assert not leader.fetched(ReplicaKey(2, b"another directory"), 10, 10, 1.0, 1)
    assert leader.high_watermark == 0
    assert [key.node_id for key, _ in leader.observers(1.0)] == [2, 4]
    assert leader.observers(1000.0) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=60))
def test_high_watermark_never_goes_back_nor_ahead_of_a_majority(steps: list[tuple[int, int]]) -> None:
    leader = leader_of(5, 0, 0)
    offsets = [0] * 5
    high_watermark = 0
    for index, offset in steps:
        offsets[index] = max(offsets[index], offset)
        if index == 0:
            leader.flushed(offsets[0])
        else:
            leader.fetched(voter(index + 1).key, offsets[index], 50, 1.0, 1)
        assert leader.high_watermark >= high_watermark
        high_watermark = leader.high_watermark
        assert sum(offset >= high_watermark for offset in offsets) >= 3


def test_a_leader_without_its_majority_resigns() -> None:
    raft = replica()
    now = elected(raft)
    while raft.state.leading is not None:
        deadline = raft.elections.deadline
        assert deadline is not None
        raft.elections.tick(deadline)
        raft.replication.fetch(
            deadline, 0, voter(2).key, raft.state.epoch, OffsetAndEpoch(0, 0)
        ) if deadline < now + 10 else None
        now_at = deadline
    assert now_at >= now + 10 + 1.5 * Timeouts().fetch_s - 1.0
    assert isinstance(raft.state.role, Resigned)
    ends = [effect for effect in effects(raft) if isinstance(effect, SendEnd)]
    assert [effect.to.voter_id for effect in ends] == [2, 3]
    assert [key.node_id for key in ends[0].preferred] == [2, 3]


# -- elections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "epochs", "expected"),
    [(None, "", 1), (None, "24", 5), (ElectionState(7), "4", 8), (ElectionState(2), "4", 5)],
)
def test_an_only_voter_leads_at_once_above_every_epoch_that_was(
    stored: ElectionState | None, epochs: str, expected: int
) -> None:
    raft = replica(voters=1, stored=stored, epochs=epochs)
    assert raft.state.leading is not None
    assert effects(raft)[-1] == Persist(ElectionState(expected, 1, 1, voter(1).directory_id))


def test_epochs_end() -> None:
    with pytest.raises(InvariantError):
        replica(voters=1, stored=ElectionState(MAX_LEADER_EPOCH))


def test_from_pre_vote_to_leader() -> None:
    raft = replica()
    now = to_prospective(raft)
    asked = effects(raft)
    assert asked == [SendVote(voter(2), 0, True), SendVote(voter(3), 0, True)]
    raft.elections.vote_answered(now, voter(3).key, asked[1], ErrorCode.NONE, Peer(LeaderAndEpoch(-1, 0)), granted=True)
    assert effects(raft) == [
        Persist(ElectionState(1, NO_NODE, 1, voter(1).directory_id)),
        SendVote(voter(2), 1, False),
        SendVote(voter(3), 1, False),
    ]
    raft.elections.vote_answered(now, voter(3).key, asked[1], ErrorCode.NONE, Peer(LeaderAndEpoch(-1, 0)), granted=True)
    assert isinstance(raft.state.role, Candidate), "a pre-vote is not a vote"
    vote = SendVote(voter(2), 1, False)
    raft.elections.vote_answered(now, voter(2).key, vote, ErrorCode.NONE, Peer(LeaderAndEpoch(-1, 1)), granted=True)
    assert raft.state.leader == LeaderAndEpoch(1, 1)
    assert effects(raft) == [
        Persist(ElectionState(1, 1, 1, voter(1).directory_id)),
        SendBegin(voter(2), 1),
        SendBegin(voter(3), 1),
    ]


def test_election_is_measured_from_first_pre_vote_to_a_leader() -> None:
    raft = replica()
    began = to_prospective(raft)
    grant(raft, began, 2, granted=False)
    grant(raft, began, 3, granted=False)
    assert not raft.state.statistics.elections.count
    now = elected(raft)
    elections = raft.state.statistics.elections
    assert (elections.count, elections.sum_s, elections.max_s) == (1, now - began, now - began)
    assert now > began


def test_rejected_pre_vote_of_a_follower_is_not_measured() -> None:
    raft = replica()
    raft.requests.begin_quorum_epoch(0.0, voter(1).key, LeaderAndEpoch(2, 1), ("host", 2))
    now = to_prospective(raft)
    grant(raft, now, 2, granted=False)
    grant(raft, now, 3, granted=False)
    raft.requests.begin_quorum_epoch(now + 9.0, voter(1).key, LeaderAndEpoch(3, 2), ("host", 3))
    assert not raft.state.statistics.elections.count


def test_a_vote_is_given_once_in_an_epoch_and_remembered() -> None:
    raft = replica(3)
    place = OffsetAndEpoch(0, 0)
    assert raft.requests.vote(0.0, voter(3).key, voter(1).key, 1, place, pre_vote=False) == (ErrorCode.NONE, True)
    assert effects(raft)[-1] == Persist(ElectionState(1, NO_NODE, 1, voter(1).directory_id))
    assert raft.requests.vote(0.0, voter(3).key, voter(2).key, 1, place, pre_vote=False) == (ErrorCode.NONE, False)
    assert raft.requests.vote(0.0, voter(3).key, voter(1).key, 1, place, pre_vote=False) == (ErrorCode.NONE, True)
    again = replica(3, stored=raft.state.election)
    assert again.requests.vote(0.0, voter(3).key, voter(2).key, 1, place, pre_vote=False) == (ErrorCode.NONE, False)
    reborn = ReplicaKey(1, b"a new directory!")
    assert again.requests.vote(0.0, voter(3).key, reborn, 1, place, pre_vote=False) == (ErrorCode.NONE, False)


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize(
    ("place", "granted"),
    [((2, 1), False), ((1, 2), False), ((2, 2), True), ((3, 2), True), ((1, 3), True)],
)
def test_no_vote_for_a_log_that_is_behind(place: tuple[int, int], granted: bool, pre_vote: bool) -> None:
    raft = replica(3, epochs="12")
    answer = raft.requests.vote(0.0, voter(3).key, voter(1).key, 5, OffsetAndEpoch(*place), pre_vote=pre_vote)
    assert answer == (ErrorCode.NONE, granted)


def test_a_directory_that_is_lost_votes_no_more() -> None:
    raft = replica(3)
    old = ReplicaKey(3, b"the lost directory"[:16])
    place = OffsetAndEpoch(9, 9)
    assert raft.requests.vote(0.0, old, voter(1).key, 1, place, pre_vote=False) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert raft.requests.begin_quorum_epoch(0.0, old, LeaderAndEpoch(1, 1), None) is ErrorCode.INVALID_VOTER_KEY
    assert effects(raft) == []


def test_followers_of_a_living_leader_give_no_pre_vote() -> None:
    raft = replica(3)
    raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(1, 1), None)
    asked = (voter(3).key, voter(2).key, 1, OffsetAndEpoch(9, 9))
    assert raft.requests.vote(0.0, *asked, pre_vote=True)[1], "it has not heard from the leader yet"
    assert raft.replication.fetch_answered(0.0, 1, ErrorCode.NONE, Peer(LeaderAndEpoch(1, 1)))
    assert not raft.requests.vote(0.0, *asked, pre_vote=True)[1]
    raft.requests.end_quorum_epoch(0.0, LeaderAndEpoch(1, 1), (voter(2).key, voter(3).key))
    assert raft.requests.vote(0.0, *asked, pre_vote=True)[1], "the leader said good-bye"
    assert not raft.requests.vote(0.0, *asked, pre_vote=False)[1], "epoch 1 has a leader"
    assert raft.state.epoch == 1, "pre-votes change nothing"


STRANGER = ReplicaKey(99, b"somebody's else!")
AHEAD = OffsetAndEpoch(2**63 - 1, 2**31 - 1)


@pytest.mark.promise("S10")
@pytest.mark.parametrize("candidate", [STRANGER, voter(1).key])
def test_one_vote_does_not_use_up_the_epochs(candidate: ReplicaKey) -> None:
    """Requests of a client that knows the voters, in any state of this replica."""
    raft = replica(3)
    for asked in (ReplicaKey(NO_NODE), voter(3).key):
        for pre_vote in (True, False):
            answer = raft.requests.vote(0.0, asked, candidate, MAX_LEADER_EPOCH, AHEAD, pre_vote=pre_vote)
            assert answer == (ErrorCode.NONE, False)
    for leader_id in (1, 2, 99):
        leader = LeaderAndEpoch(leader_id, MAX_LEADER_EPOCH)
        assert raft.requests.begin_quorum_epoch(0.0, voter(3).key, leader, None) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert raft.requests.end_quorum_epoch(0.0, leader, ()) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert effects(raft) == []
    assert raft.state.election == ElectionState(0)


def test_a_pre_vote_changes_nothing() -> None:
    raft = replica(3)
    before = raft.state.role
    assert raft.requests.vote(0.0, voter(3).key, voter(2).key, 1, OffsetAndEpoch(0, 0), pre_vote=True)[1]
    assert raft.requests.vote(0.0, voter(3).key, STRANGER, 1, OffsetAndEpoch(0, 0), pre_vote=True)[1]
    assert raft.state.role is before
    assert effects(raft) == []


@pytest.mark.promise("S10")
@pytest.mark.parametrize("candidate", [STRANGER, voter(2).key])
def test_no_vote_counts_while_a_leader_is_heard(candidate: ReplicaKey) -> None:
    raft = replica(3)
    raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(1, 1), None)
    assert raft.replication.fetch_answered(0.0, 1, ErrorCode.NONE, Peer(LeaderAndEpoch(1, 1)))
    state = raft.state.election
    assert raft.requests.vote(0.0, voter(3).key, candidate, 2, AHEAD, pre_vote=False) == (ErrorCode.NONE, False)
    assert raft.state.election == state
    leader = replica(1)
    now = elected(leader)
    assert leader.requests.vote(now, voter(1).key, candidate, 2, AHEAD, pre_vote=False) == (ErrorCode.NONE, False)
    assert leader.state.leading is not None


def test_unknown_candidate_raises_epoch_only_with_a_vote() -> None:
    raft = replica(3, epochs="12")
    behind, level = OffsetAndEpoch(1, 1), OffsetAndEpoch(2, 2)
    assert raft.requests.vote(0.0, voter(3).key, STRANGER, 5, behind, pre_vote=False) == (ErrorCode.NONE, False)
    for asked in (ReplicaKey(NO_NODE), ReplicaKey(3), ReplicaKey(NO_NODE, voter(3).directory_id)):
        assert raft.requests.vote(0.0, asked, STRANGER, 5, level, pre_vote=False) == (ErrorCode.NONE, False)
    assert raft.state.epoch == 2
    assert raft.requests.vote(0.0, voter(3).key, STRANGER, 5, level, pre_vote=False) == (ErrorCode.NONE, True)
    assert effects(raft) == [Persist(ElectionState(5, NO_NODE, *STRANGER))]


def test_a_voter_that_lags_elects_one_that_was_just_added() -> None:
    """Voters 1 and 3 were all when 3 wrote last; 1 added 2 with the vote of 2 alone, and died (KIP-853)."""
    raft = replica(3, voters=0, epochs="1")
    raft.replication.voters_appended(0.0, 0, (voter(1), voter(3)))
    assert raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(1, 1), None) is ErrorCode.NONE
    assert raft.replication.fetch_answered(0.0, 1, ErrorCode.NONE, Peer(LeaderAndEpoch(1, 1)))
    asked = (voter(3).key, voter(2).key, 2, OffsetAndEpoch(2, 1))
    assert not raft.requests.vote(0.1, *asked, pre_vote=True)[1], "voter 1 is heard"
    deadline = raft.elections.deadline
    assert deadline is not None
    assert raft.requests.vote(deadline, *asked, pre_vote=True)[1]
    assert raft.requests.vote(deadline, *asked, pre_vote=False)[1]
    assert raft.requests.begin_quorum_epoch(deadline, voter(3).key, LeaderAndEpoch(2, 2), ("host", 2)) is ErrorCode.NONE
    assert raft.state.leader == LeaderAndEpoch(2, 2)


def test_an_observer_that_heard_its_leader_long_ago_votes() -> None:
    """It is never a candidate, so its time as a follower never ends; it may be a voter all the same."""
    raft = replica(4, voters=3)
    raft.requests.begin_quorum_epoch(0.0, voter(4).key, LeaderAndEpoch(1, 1), None)
    assert raft.replication.fetch_answered(0.0, 1, ErrorCode.NONE, Peer(LeaderAndEpoch(1, 1)))
    assert raft.elections.deadline is None
    asked = (voter(4).key, voter(2).key, 2, OffsetAndEpoch(9, 1))
    assert not raft.requests.vote(0.1, *asked, pre_vote=False)[1]
    assert raft.requests.vote(10.0, *asked, pre_vote=False)[1]


def test_voter_response_may_contain_any_epoch() -> None:
    raft = replica(3)
    raft.elections.learn(0.0, *Peer(LeaderAndEpoch(1, 1_000_000)))
    assert raft.state.leader == LeaderAndEpoch(1, 1_000_000)


def test_replica_ahead_is_queried_for_its_epoch() -> None:
    raft = replica(1)
    now = elected(raft)
    effects(raft)
    raft.replication.voters_appended(now, 0, (voter(1), voter(2)))
    ahead = (voter(3).key, 7, OffsetAndEpoch(0, 0))
    assert raft.replication.fetch(now + 1.0, 0, *ahead).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert raft.replication.fetch(now + 1.0, 0, *ahead).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert effects(raft) == [SendBegin(voter(3), 1)], "it was a voter once, and is asked once in a while"
    assert (
        raft.replication.fetch(now + 9.0, 0, STRANGER, 7, OffsetAndEpoch(0, 0)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    assert effects(raft) == []
    assert raft.state.leading is not None, "a request alone changes no epoch"


def test_a_leader_that_answers_is_not_moved_by_a_stranger() -> None:
    raft = replica(3)
    raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(1, 1), ("host", 1))
    assert raft.replication.fetch_answered(0.0, 1, ErrorCode.NONE, Peer(LeaderAndEpoch(1, 1)))
    assert raft.requests.begin_quorum_epoch(0.1, voter(3).key, LeaderAndEpoch(1, 1), ("elsewhere", 1)) is ErrorCode.NONE
    assert raft.state.fetch_from(0.1) == ("host", 1)
    assert raft.requests.begin_quorum_epoch(0.1, voter(3).key, LeaderAndEpoch(99, 2), None) is ErrorCode.INVALID_REQUEST
    assert raft.requests.end_quorum_epoch(0.1, LeaderAndEpoch(99, 2), ()) is ErrorCode.INVALID_REQUEST
    assert raft.state.leader == LeaderAndEpoch(1, 1)


def test_leader_falsely_reported_as_resigned_is_followed_again() -> None:
    """No other leader is elected while it leads, so its epoch continues, and replicas that left must return."""
    raft = replica(3)
    raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(1, 1), ("host", 1))
    peer = Peer(LeaderAndEpoch(1, 1), ("host", 1))
    assert raft.replication.fetch_answered(0.0, 1, ErrorCode.NONE, peer)
    assert raft.requests.end_quorum_epoch(0.1, LeaderAndEpoch(1, 1), (voter(3).key,)) is ErrorCode.NONE
    now = to_prospective(raft)
    asked = [effect for effect in effects(raft) if isinstance(effect, SendVote)]
    for effect in asked:
        raft.elections.vote_answered(now, effect.to.key, effect, ErrorCode.NONE, peer, granted=False)
    assert isinstance(raft.state.role, Unattached)
    assert not raft.replication.fetch_answered(now, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, peer), "hearsay"
    assert raft.replication.fetch_answered(now, 1, ErrorCode.NONE, peer)
    assert isinstance(raft.state.role, Follower)
    assert raft.state.leader == LeaderAndEpoch(1, 1)


def test_lost_directory_of_a_replaced_voter_is_not_listed() -> None:
    leader = leader_of(3, 0, 0)
    new = ReplicaKey(2, b"another directory")
    leader.fetched(voter(2).key, 1, 1, 1.0, 1)
    leader.fetched(new, 1, 1, 2.0, 2)
    leader.set_voters([voter(1), voter(3)], 3.0, voter(1).key)
    assert [key for key, _ in leader.observers(3.0)] == [new]
    leader.set_voters([voter(1), voter(3), Voter(2, b"another directory", ())], 3.0, voter(1).key)
    assert leader.observers(3.0) == []


def test_observers_are_kept_in_bounds() -> None:
    leader = leader_of(3, 0, 0)
    for number in range(2 * MAX_OBSERVERS):
        leader.fetched(ReplicaKey(1000 + number), 1, 1, 0.0, 0)
        leader.fetched(voter(4).key, 1, 1, 0.0, 0)
    known = [key for key, _ in leader.observers(0.0)]
    assert len(known) == MAX_OBSERVERS
    assert voter(4).key in known, "one that fetches is not forgotten"


def test_leader_does_not_lead_the_same_epoch_again() -> None:
    raft = replica(stored=ElectionState(4, 1, 1, voter(1).directory_id))
    assert isinstance(raft.state.role, Resigned)
    assert raft.state.leader == LeaderAndEpoch(NO_NODE, 4)
    assert [effect.epoch for effect in effects(raft) if isinstance(effect, SendEnd)] == [4, 4]
    assert (
        raft.replication.fetch(0.0, 0, voter(2).key, 4, OffsetAndEpoch(0, 0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    deadline = raft.elections.deadline
    assert deadline is not None
    raft.elections.tick(deadline)
    assert isinstance(raft.state.role, Unattached)
    assert raft.state.epoch == 5


def test_split_votes_are_retried_before_the_election_timeout() -> None:
    raft = replica()
    now, role = to_candidate(raft)
    before = role.deadline
    grant(raft, now, 2, granted=False)
    grant(raft, now, 3, granted=False)
    assert role.deadline < before
    raft.elections.tick(role.deadline)
    assert isinstance(raft.state.role, Prospective)
    assert raft.state.epoch == 1


@pytest.mark.parametrize("answers_first", [False, True])
def test_split_votes_do_not_wait_for_a_dead_voter(answers_first: bool) -> None:
    raft = replica()
    now, role = to_candidate(raft)
    before = role.deadline
    asked = [effect for effect in raft.state.effects if isinstance(effect, SendVote) and effect.to.voter_id == 3][-1]
    if answers_first:
        grant(raft, now, 2, granted=False)
        assert role.deadline == before
        raft.elections.vote_unanswered(now, voter(3).key, asked)
    else:
        raft.elections.vote_unanswered(now, voter(3).key, asked)
        assert role.deadline == before
        grant(raft, now, 2, granted=False)
    drawn = role.deadline
    assert drawn < before
    raft.elections.vote_unanswered(now, voter(3).key, asked)
    assert role.deadline == drawn
    raft.elections.tick(role.deadline)
    assert isinstance(raft.state.role, Prospective)
    assert raft.state.epoch == 1


def test_a_voter_that_was_not_reached_may_vote_yet() -> None:
    raft = replica()
    now = to_prospective(raft)
    asked = [effect for effect in raft.state.effects if isinstance(effect, SendVote) and effect.to.voter_id == 2][-1]
    raft.elections.vote_unanswered(now, voter(2).key, asked)
    grant(raft, now, 2)
    assert isinstance(raft.state.role, Candidate)
    raft.elections.vote_unanswered(now, voter(2).key, asked)  # of the pre-vote, which is over
    assert raft.state.role.unreached == set()


def test_followers_of_a_lost_leader_time_out_at_different_times() -> None:
    raft = replica()
    raft.requests.begin_quorum_epoch(0.0, voter(1).key, LeaderAndEpoch(2, 1), ("host", 2))
    peer = Peer(LeaderAndEpoch(2, 1))
    deadlines = set()
    for _ in range(50):
        assert raft.replication.fetch_answered(10.0, 1, ErrorCode.NONE, peer)
        assert raft.elections.deadline is not None
        deadlines.add(raft.elections.deadline)
    assert len(deadlines) > 40
    assert min(deadlines) >= 11.8
    assert max(deadlines) <= 12.0


def test_a_pre_vote_that_is_refused_leads_back_to_the_leader() -> None:
    raft = replica()
    raft.requests.begin_quorum_epoch(0.0, voter(1).key, LeaderAndEpoch(2, 1), ("host", 2))
    now = to_prospective(raft)
    grant(raft, now, 2, granted=False)
    grant(raft, now, 3, granted=False)
    assert isinstance(raft.state.role, Follower)
    assert raft.state.fetch_from(now) == ("host", 2)
    assert raft.state.epoch == 1


def test_known_leader_is_found_without_a_voters_record() -> None:
    raft = replica(4, voters=0, stored=ElectionState(3, 1))
    assert raft.state.fetch_from(0.0) is None
    announced = Peer(LeaderAndEpoch(1, 3), ("host", 1))
    assert not raft.replication.fetch_answered(0.1, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER, announced)
    assert raft.state.fetch_from(0.1) == ("host", 1)
    raft.replication.fetch_answered(0.2, 3, ErrorCode.NONE, Peer(LeaderAndEpoch(1, 3)))
    assert raft.state.fetch_from(0.2) == ("host", 1), "an answer without address takes none away"


def test_the_first_successor_tries_at_once() -> None:
    raft = replica(2)
    raft.requests.begin_quorum_epoch(0.0, voter(2).key, LeaderAndEpoch(1, 1), None)
    raft.requests.end_quorum_epoch(3.0, LeaderAndEpoch(1, 1), (voter(2).key, voter(3).key))
    assert raft.elections.deadline == 3.0


def test_another_leader_in_the_same_epoch_is_a_lie() -> None:
    raft = replica(3)
    raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(1, 1), None)
    assert raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(2, 1), None) is ErrorCode.INVALID_REQUEST
    assert raft.requests.end_quorum_epoch(0.0, LeaderAndEpoch(2, 1), ()) is ErrorCode.INVALID_REQUEST
    assert (
        raft.requests.begin_quorum_epoch(0.0, voter(3).key, LeaderAndEpoch(2, 0), None) is ErrorCode.FENCED_LEADER_EPOCH
    )
    assert raft.state.leader == LeaderAndEpoch(1, 1)


# -- Fetch -----------------------------------------------------------------------------------------------------------


def test_where_logs_part() -> None:
    raft = replica(epochs="1123")
    elected(raft)
    epoch = raft.state.epoch

    def ask(offset: int, last_epoch: int) -> object:
        verdict = raft.replication.fetch(1.0, 0, voter(2).key, epoch, OffsetAndEpoch(offset, last_epoch))
        assert verdict.error is ErrorCode.NONE
        return verdict.diverging

    assert ask(0, 0) is None
    assert ask(2, 1) is None
    assert ask(4, 1) == OffsetAndEpoch(2, 1)
    assert ask(4, 2) == OffsetAndEpoch(3, 2)
    assert ask(4, 3) is None
    assert ask(9, 3) == OffsetAndEpoch(4, 3)


def test_replica_below_the_log_start_gets_a_snapshot() -> None:
    raft = replica(epochs="1123")
    elected(raft)
    log = raft.state.log
    assert isinstance(log, MemoryLog)
    log.compact(3, ())
    snapshot = OffsetAndEpoch(3, 2)
    for place in [(0, 0), (2, 1), (3, 1)]:
        verdict = raft.replication.fetch(1.0, 0, voter(2).key, raft.state.epoch, OffsetAndEpoch(*place))
        assert verdict.snapshot == snapshot, place
    assert raft.replication.fetch(1.0, 0, voter(2).key, raft.state.epoch, OffsetAndEpoch(3, 2)).snapshot is None


def test_epochs_are_fenced() -> None:
    raft = replica()
    elected(raft)
    assert raft.replication.fetch(1.0, 0, voter(2).key, 0, OffsetAndEpoch(0, 0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert raft.replication.fetch(1.0, 0, voter(2).key, 2, OffsetAndEpoch(0, 0)).error is ErrorCode.UNKNOWN_LEADER_EPOCH


# -- voters ----------------------------------------------------------------------------------------------------------


def test_a_truncation_brings_the_voters_before_it_back() -> None:
    raft = replica(3, epochs="11")
    raft.replication.voters_appended(0.0, 1, (voter(1), voter(2)))
    assert not raft.state.is_voter
    assert raft.state.may_stand, "its removal is not committed"
    raft.replication.truncated(1)
    assert raft.state.is_voter
    raft.replication.leader_says(1)
    with pytest.raises(InvariantError):
        raft.replication.truncated(0)


def test_one_change_at_a_time_and_not_before_the_epoch_is_sure() -> None:
    raft = replica(epochs="")
    assert voter_change_error(raft.state) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    now = elected(raft)
    log = raft.state.log
    assert isinstance(log, MemoryLog)
    log.entries.append(Entry(raft.state.epoch, 0))
    assert voter_change_error(raft.state) is ErrorCode.REQUEST_TIMED_OUT
    raft.replication.flushed(now, 1)
    raft.replication.fetch(now, 0, voter(3).key, raft.state.epoch, OffsetAndEpoch(1, raft.state.epoch))
    assert raft.state.high_watermark == 1
    assert voter_change_error(raft.state) is ErrorCode.NONE
    log.entries.append(Entry(raft.state.epoch, 1))
    raft.replication.voters_appended(now, 1, (voter(2), voter(3)))
    assert voter_change_error(raft.state) is ErrorCode.REQUEST_TIMED_OUT
    raft.replication.flushed(now, 2)
    for node_id in (2, 3):
        assert raft.state.leading is not None
        raft.replication.fetch(now, 0, voter(node_id).key, raft.state.epoch, OffsetAndEpoch(2, raft.state.epoch))
    assert isinstance(raft.state.role, Resigned), "its own removal is committed"


# -- voters of the configuration -------------------------------------------------------------------------------------


def configured_replica() -> Raft:
    voters = tuple(voter(index + 1)._replace(directory_id=ZERO_UUID) for index in range(3))
    raft = Raft(voter(1).key, MemoryLog(), SimRng(1), Timeouts(), VoterSets(voters), 0)
    raft.elections.start(0.0, None)
    return raft


def test_configured_voters_are_known_by_their_ids_alone() -> None:
    raft = configured_replica()
    assert raft.state.is_voter
    assert raft.state.local == ReplicaKey(1)
    assert raft.state.key(2, b"D" * 16) == raft.state.key(2, b"E" * 16) == ReplicaKey(2)
    first, second = raft.state.key(2, b"D" * 16), raft.state.key(3, b"E" * 16)
    assert raft.requests.vote(0.0, ReplicaKey(1), first, 1, OffsetAndEpoch(0, 0), pre_vote=False)[1]
    assert raft.requests.vote(0.0, ReplicaKey(1), first, 1, OffsetAndEpoch(0, 0), pre_vote=False)[1]
    assert not raft.requests.vote(0.0, ReplicaKey(1), second, 1, OffsetAndEpoch(0, 0), pre_vote=False)[1]


def test_empty_directory_does_not_vote_for_the_recorded_one() -> None:
    """It may receive the record only later; the request names its own directory."""
    raft = configured_replica()
    asked, place = ReplicaKey(1, b"D" * 16), OffsetAndEpoch(0, 0)
    assert raft.requests.vote(0.0, asked, ReplicaKey(2), 1, place, pre_vote=False) == (
        ErrorCode.INVALID_VOTER_KEY,
        False,
    )
    assert raft.requests.begin_quorum_epoch(0.0, asked, LeaderAndEpoch(2, 1), None) is ErrorCode.INVALID_VOTER_KEY
    assert raft.requests.vote(0.0, raft.state.replica, ReplicaKey(2), 1, place, pre_vote=False) == (
        ErrorCode.NONE,
        True,
    )


def test_a_record_that_names_voters_ends_the_configured_ones() -> None:
    raft = configured_replica()
    raft.replication.voters_appended(0.0, 0, (voter(1), voter(2)))
    assert raft.state.local == voter(1).key
    assert raft.state.voters == (voter(1), voter(2))
    assert raft.state.key(2, b"E" * 16) != voter(2).key
    raft.replication.truncated(0)
    assert raft.state.local == ReplicaKey(1)
    assert [each.voter_id for each in raft.state.voters] == [1, 2, 3]
