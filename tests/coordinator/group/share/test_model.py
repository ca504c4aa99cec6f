"""Random lives of share groups: only initialized partitions are assigned, and all of them when nothing changes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.modern.share.group import ShareGroup

from ..consumer.world import GROUP
from .world import ShareWorld, state_of

TOPICS = ("foo", "bar", "zap")
STARTS_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
names = st.integers(0, 40)


class ShareGroupLife(RuleBasedStateMachine):
    """`epochs` are the epochs that the running members know.

    A topic that is created again has another id: it is of a later generation. The partitions of a topic only grow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[str, int] = {}
        self.counter = 0
        self.foo, self.generations = 3, {"foo": 0, "bar": 0}

    @initialize(interval_ms=st.sampled_from((0, 1_000)))
    def begin(self, interval_ms: int) -> None:
        self.world = ShareWorld({"foo": 3, "bar": 2}, group_share_assignment_interval_ms=interval_ms)

    def group(self) -> ShareGroup | None:
        group = self.world.shard.context.groups.find(GROUP)
        return group if isinstance(group, ShareGroup) else None

    @rule(topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
    def join(self, topics: list[str]) -> None:
        if len(self.epochs) < 5:
            self.counter += 1
            name = f"m{self.counter}"
            self.epochs[name] = self.world.subscribe(name, *topics).member_epoch

    @precondition(lambda self: self.epochs)
    @rule(number=names, lost=st.booleans())
    def heartbeat(self, number: int, lost: bool) -> None:
        name = sorted(self.epochs)[number % len(self.epochs)]
        try:
            epoch = self.world.beat(name, self.epochs[name]).member_epoch
        except KafkaError as error:
            if error.code not in STARTS_OVER:
                raise
            del self.epochs[name]
            return
        if not lost:
            self.epochs[name] = epoch

    @precondition(lambda self: self.epochs)
    @rule(number=names, says_so=st.booleans())
    def leave(self, number: int, says_so: bool) -> None:
        name = sorted(self.epochs)[number % len(self.epochs)]
        del self.epochs[name]
        if says_so:
            self.world.error_of(name, -1)

    @rule(fails=st.booleans())
    def initializations_end(self, fails: bool) -> None:
        keys = frozenset(key for each in self.world.initializations for key in each.start_offsets)
        self.world.initialize(failed=frozenset(sorted(keys, key=repr)[:1]) if fails else frozenset())

    @rule(seconds=st.sampled_from((1.0, 11.0, 31.0, 46.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.time.advance(seconds)

    @rule(foo=st.integers(3, 5), again=st.booleans(), bar=st.sampled_from((0, 2)))
    def topics_change(self, foo: int, again: bool, bar: int) -> None:
        self.foo = foo if again else max(foo, self.foo)
        self.generations["foo"] += again
        self.generations["bar"] += not bar
        topics = {"foo": (self.foo, self.generations["foo"]), "bar": (bar, self.generations["bar"])}
        for deletion in self.world.set_topics({name: each for name, each in topics.items() if each[0]}):
            self.world.delete(deletion)

    @rule(append_fails=st.booleans())
    def coordinator_fails(self, append_fails: bool) -> None:
        group = self.group()
        before = None if group is None else state_of(group)
        if append_fails:
            self.world.appends = False
            for name in sorted(self.epochs)[:1]:
                self.world.error_of(name, self.epochs[name], ["bar"])
            self.world.appends = True
        else:
            self.world.restart()
        group = self.group()
        assert before == (None if group is None else state_of(group))

    @invariant()
    def only_initialized_partitions_are_targets(self) -> None:
        group = self.group() if hasattr(self, "world") else None
        if group is None:
            return
        for target in group.targets.values():
            for topic_id, numbers in target.items():
                if topic_id in self.world.image.topics_by_id:
                    assert numbers <= group.state.initialized(topic_id)

    def teardown(self) -> None:
        """Without further changes every subscribed partition has a member."""
        group = self.group() if hasattr(self, "world") else None
        if group is None or not self.epochs:
            return
        self.world.time.advance(31.0)
        live = [name for name in self.epochs if name in group.members]
        self.world.converge(*live)
        group = self.group()
        if group is None:
            return
        for name in group.topic_subscribers:
            topic = self.world.image.topic(name)
            if topic is not None and live and group.members.keys() == set(live):
                held = {number for each in live for number in group.member(each).assigned.get(topic.topic_id, ())}
                assert held == set(topic.partitions)


TestShareGroupLife = ShareGroupLife.TestCase
TestShareGroupLife.settings = settings(
    max_examples=size(15, 150), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
