"""Many clients of one group come, go, stall and lose answers, in an order made up by hypothesis.

Whatever happens: no assignment is given to two members at once, every request is answered in the end, and once the
trouble is over the group comes to a generation in which everybody has its part.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.member_memory import MEMBER_BYTES

from ...answers import Answer
from ..conversation import REBALANCE_MS, SESSION_MS, Conversation

PARTITIONS = 6
NO_GENERATION = -1


class Client:
    """A consumer as clients are written: join, sync, heartbeat; what it owns, it owns until told otherwise."""

    def __init__(self, talk: Conversation, instance: str | None) -> None:
        self.talk = talk
        self.instance = instance
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owned: frozenset[int] = frozenset()
        self.waiting: Answer[Any] | None = None
        self.stage = "join"

    def step(self) -> None:
        """Do the next thing that this client would do."""
        if self.waiting is not None:
            if self.waiting.pending:
                return
            answer, self.waiting = self.waiting, None
            (self._joined if self.stage == "join" else self._synced)(answer.response)
        elif self.stage == "join":
            self.waiting = self.talk.join(self.member_id, instance=self.instance, protocols={"range": b""})
        elif self.stage == "beat":
            code = self.talk.heartbeat(self.member_id, self.generation, instance=self.instance)
            if code != ErrorCode.NONE:
                self._start_over(code)

    def _joined(self, response: object) -> None:
        code = response.error_code  # type: ignore[attr-defined]
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id  # type: ignore[attr-defined]
        elif code:
            self._start_over(code)
        else:
            self.member_id = response.member_id  # type: ignore[attr-defined]
            self.generation = response.generation_id  # type: ignore[attr-defined]
            members = [each.member_id for each in response.members]  # type: ignore[attr-defined]
            skip = response.skip_assignment  # type: ignore[attr-defined]
            assignments: dict[str, bytes] = {}
            if members and not skip:
                for partition in range(PARTITIONS):
                    member = members[partition % len(members)]
                    assignments[member] = assignments.get(member, b"") + bytes([partition])
            self.stage = "sync"
            self.waiting = self.talk.sync(
                self.member_id, self.generation, assignments, instance=self.instance, protocol_name="range"
            )

    def _synced(self, response: object) -> None:
        code = response.error_code  # type: ignore[attr-defined]
        if code:
            self._start_over(code)
        else:
            self.owned = frozenset(response.assignment)  # type: ignore[attr-defined]
            self.stage = "beat"

    def _start_over(self, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        self.generation = NO_GENERATION
        self.owned = frozenset()
        self.stage = "join"
        self.waiting = None


class Churn(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.talk = Conversation()
        self.clients: list[Client] = []
        self.instances = 0

    @precondition(lambda self: len(self.clients) < 5)
    @rule(static=st.booleans())
    def start_client(self, static: bool) -> None:
        self.instances += static
        self.clients.append(Client(self.talk, f"i{self.instances}" if static else None))

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 4), steps=st.integers(1, 4))
    def work(self, index: int, steps: int) -> None:
        for _ in range(steps):
            self.clients[index % len(self.clients)].step()

    @rule()
    def all_clients_step(self) -> None:
        for client in self.clients:
            client.step()

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 4), leaves=st.booleans())
    def stop_client(self, index: int, leaves: bool) -> None:
        client = self.clients.pop(index % len(self.clients))
        if leaves and client.member_id:
            self.talk.leave_without_answer(client.member_id)

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 4))
    def restart_client(self, index: int) -> None:
        """The process dies and comes back: a static member with its instance, any other as somebody new."""
        place = index % len(self.clients)
        self.clients[place] = Client(self.talk, self.clients[place].instance)

    @rule(seconds=st.sampled_from([0.5, 3.0, SESSION_MS / 2000, SESSION_MS / 1000, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.talk.time.advance(seconds)
        for client in self.clients:
            client.step()

    @rule(code=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]))
    def an_append_will_fail(self, code: ErrorCode) -> None:
        if not self.talk.log.append_failures:
            self.talk.log.append_failures.append(KafkaError(code))

    @rule()
    def the_coordinator_moves(self) -> None:
        self.talk.runtime.resign(0)
        self.talk.start()

    @invariant()
    def partitions_have_one_owner(self) -> None:
        """Of members that the coordinator would let commit, no two own the same partition."""
        group = self.talk.shard.context.groups.find("g")
        if group is None:
            return
        owners: dict[int, str] = {}
        for client in self.clients:
            if client.stage != "beat" or client.generation != group.generation_id:  # type: ignore[attr-defined]
                continue
            if client.member_id not in group.members:  # type: ignore[attr-defined]
                continue
            for partition in client.owned:
                assert partition not in owners, (partition, owners[partition], client.member_id)
                owners[partition] = client.member_id

    @invariant()
    def counts_are_right(self) -> None:
        group = self.talk.shard.context.groups.find("g")
        if group is None:
            return
        members = group.members.values()  # type: ignore[attr-defined]
        held = sum(member.held_bytes for member in members) + MEMBER_BYTES * len(group.pending_join_members)  # type: ignore[attr-defined]
        assert group.held_bytes == held
        assert group.awaiting_join == sum(member.join_reply is not None for member in members)  # type: ignore[attr-defined]
        static = {member.group_instance_id: member.member_id for member in members if member.is_static}
        assert group.static_members == static  # type: ignore[attr-defined]
        assert (group.leader_id is None) == (not static and not members)  # type: ignore[attr-defined]

    def teardown(self) -> None:
        """The trouble is over: soon everybody has its part, and nothing is owned twice or by nobody."""
        self.talk.log.append_failures.clear()
        for _ in range(4 * REBALANCE_MS // 1000):
            self.talk.time.advance(1)
            for client in self.clients:
                for _ in range(3):
                    client.step()
        assert all(client.stage == "beat" for client in self.clients)
        owned = sorted(partition for client in self.clients for partition in client.owned)
        assert owned == (list(range(PARTITIONS)) if self.clients else [])
        assert not self.talk.defects


TestChurn = Churn.TestCase
TestChurn.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
