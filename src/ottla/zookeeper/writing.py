"""Changes of the metadata image as operations on ZooKeeper's tree.

The controller replays its records on a delta, as with any metadata log, and the changes become groups of operations
here. After each group the tree is a consistent cluster (`reading`): configs of a topic are written before the topic,
the topic before the states of its partitions, and new replicas before an ISR that contains them; a replica leaves the
ISR before it leaves the topic. A deletion begins with its request znode, so that an interrupted deletion is recognized.
Repairs of interrupted changes: `reading.Cluster.repairs`.

Every change of a partition raises its epoch, and each is one write of its state, conditional on the previous version:
the epoch is the version. Not here: registrations of brokers and the controller's claim, which each node creates itself,
and fields without a place in the tree (data directories, eligible leaders).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import InvariantError, KafkaError
from ottla.common.kafka.acl import Acl, ResourceType
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import BrokerImage, ConfigResource, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.acls import change_path, encode_acl_change, encode_acls
from ottla.protocol.znodes.brokers import (
    BrokerRegistration,
    ProducerIdBlock,
    encode_broker,
    encode_features,
    encode_producer_ids,
)
from ottla.protocol.znodes.configs import encode_change, encode_config
from ottla.protocol.znodes.operations import ANY_VERSION, Create, Delete, SetData
from ottla.protocol.znodes.tokens import encode_token
from ottla.protocol.znodes.topics import Assignment, PartitionState, TopicAssignment, encode_state, encode_topic
from ottla.zookeeper.batches import Group, check_size
from ottla.zookeeper.entities import CONFIG_FOLDERS, changed_entities, entity_path, entity_values, resource_path
from ottla.zookeeper.reading import NO_STATE, assignment_of

MAX_STEPS = 1000
"""Maximum epochs of a partition in one group: each is a separate write."""

AclResource = tuple[int, int, str]
"""Type, pattern and name."""


def registration(broker: BrokerImage, timestamp_ms: int) -> Create:
    """The ephemeral znode that registers a broker for as long as its session lasts."""
    features = {name: (levels.low, levels.high) for name, levels in broker.features.items()}
    data = encode_broker(BrokerRegistration(broker.endpoints, broker.rack, features, timestamp_ms))
    return Create(paths.broker(broker.broker_id), data, ephemeral=True)


class TreeWriter:
    """The writer of one controller term.

    It tracks the existing znodes: those of the tree that it began with, and those that it has created or removed since.
    Operations are assumed to succeed; a controller with a failed one has to read the tree again.
    """

    __slots__ = ("_broker_id", "_controller_epoch", "_known", "_leaps", "_learned")

    def __init__(self, known: Iterable[str], broker_id: int, controller_epoch: int, *, leaps: bool = False) -> None:
        """`known`: the paths of a repaired tree. `leaps`: an image may be several changes ahead of the tree."""
        self._leaps = leaps
        self._known = set(known)
        self._learned: list[tuple[str, bool]] = []
        """Paths created (true) and removed by the current change."""
        self._broker_id = broker_id
        self._controller_epoch = controller_epoch

    def learn(self, path: str) -> None:
        """Another process has created this znode."""
        self._known.add(path)

    def groups(self, old: MetadataImage, new: MetadataImage, changes: MetadataChanges) -> list[Group]:
        """The operations from the tree of `old` to that of `new`; `changes` are a delta's changes between the two.

        Raises KafkaError INVALID_REQUEST for a name that is invalid in ZooKeeper, and POLICY_VIOLATION for values that
        are too large for it, with no operation recorded; InvariantError for a partition epoch that decreases or skips.
        """
        self._learned.clear()
        try:
            made = [group for group in self._groups(old, new, changes) if group]
            for group in made:
                check_size(group)
        except KafkaError:
            for path, came in reversed(self._learned):
                (self._known.discard if came else self._known.add)(path)
            raise
        return made

    def _groups(self, old: MetadataImage, new: MetadataImage, changes: MetadataChanges) -> list[Group]:
        made: list[Group] = []
        if new.features != old.features:
            made.append(self._put(paths.FEATURE, encode_features(new.features)))
        for topic in changes.deleted_topics:
            made += self._deletion(topic)
        created = dict.fromkeys(topic.name for topic in changes.created_topics)
        changed: dict[str, list[int]] = {name: [] for name in created}
        for topic, number in changes.changed_partitions:
            changed.setdefault(topic.name, []).append(number)
        for name in created:
            values = new.topic_configs(name)
            made.append(self._put(paths.entity(paths.CONFIG_TOPICS, name), encode_config(values)))
        for name, numbers in changed.items():
            topic = new.topics[name]
            made += self._topic(old.topics_by_id.get(topic.topic_id), topic, numbers)
        for resource in changes.changed_configs:
            is_topic = resource.type == ConfigResourceType.TOPIC
            if not is_topic or (resource.name in new.topics and resource.name not in created):
                made += self._config(resource, new)
        for entity in changed_entities(old, new):
            made.append(self._noticed(entity_path(entity), entity_values(new, entity)))
        if new.next_producer_id != old.next_producer_id:
            block = ProducerIdBlock(self._broker_id, old.next_producer_id, new.next_producer_id - 1)
            made.append(self._put(paths.PRODUCER_ID_BLOCK, encode_producer_ids(block)))
        if changes.acls_changed:
            made += self._acls(old, new)
        if new.delegation_tokens is not old.delegation_tokens:
            made += self._tokens(old.delegation_tokens, new.delegation_tokens)
        return made

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topic(self, old: TopicImage | None, new: TopicImage, changed: list[int]) -> Iterator[Group]:
        before: Mapping[int, PartitionImage] = {} if old is None else old.partitions
        if not old or any(
            number not in before or assignment_of(before[number]) != assignment_of(new.partitions[number])
            for number in changed
        ):
            yield self._assigned(new, _between(before, new.partitions, changed))
        for number in changed:
            yield from self._states(new.name, number, before.get(number), new.partitions[number])
        if any(_loses_in_sync(before.get(number), new.partitions[number]) for number in changed):
            yield self._assigned(new, {})

    def _assigned(self, topic: TopicImage, instead: Mapping[int, Assignment]) -> Group:
        assigned = {number: instead.get(number) or assignment_of(each) for number, each in topic.partitions.items()}
        group = self._put(paths.topic(topic.name), encode_topic(TopicAssignment(topic.topic_id, assigned)))
        return [*group, *self._folder(paths.partitions(topic.name))]

    def _states(self, topic: str, number: int, old: PartitionImage | None, new: PartitionImage) -> Iterator[Group]:
        """One group, except for a partition that skips epochs: each of its groups leaves a state with the content of
        the last one.
        """
        version = NO_STATE if old is None else old.partition_epoch
        highest = new.partition_epoch if self._leaps else version + MAX_STEPS
        if not version <= new.partition_epoch <= highest:
            raise InvariantError(
                f"epoch of partition {number} of {topic} goes from {version} to {new.partition_epoch}, which are not "
                "versions of a znode"
            )
        path = paths.state(topic, number)
        state = PartitionState(
            new.leader, new.leader_epoch, new.isr, self._controller_epoch, recovery_state=new.leader_recovery_state
        )
        data = encode_state(state)
        for first in range(version, new.partition_epoch, MAX_STEPS):
            group: Group = []
            for step in range(first, min(first + MAX_STEPS, new.partition_epoch)):
                group += self._make(path, data) if step == NO_STATE else [SetData(path, data, step)]
            yield group

    def _deletion(self, topic: TopicImage) -> Iterator[Group]:
        yield self._folder(paths.deletion(topic.name))
        for number in topic.partitions:
            yield self._remove([paths.state(topic.name, number), paths.partition(topic.name, number)])
        config = paths.entity(paths.CONFIG_TOPICS, topic.name)
        yield self._remove([paths.partitions(topic.name), paths.topic(topic.name), config, paths.deletion(topic.name)])

    # -- other objects ---------------------------------------------------------------------------------------------

    def _config(self, resource: ConfigResource, image: MetadataImage) -> Iterator[Group]:
        if resource.type in CONFIG_FOLDERS:
            yield self._noticed(resource_path(resource), image.configs.get(resource, {}))

    def _noticed(self, path: str, values: Mapping[str, str]) -> Group:
        notice = encode_change(path.removeprefix("/config/"))
        return [*self._put(path, encode_config(values)), *self._notice(paths.CONFIG_CHANGE, notice)]

    def _acls(self, old: MetadataImage, new: MetadataImage) -> Iterator[Group]:
        before, after = _by_resource(old), _by_resource(new)
        for resource in {**before, **after}:
            acls = after.get(resource, [])
            if set(acls) == set(before.get(resource, ())):
                continue
            kind, pattern, name = resource
            path = paths.acl(ResourceType(kind).shown, pattern, name)
            group = self._put(path, encode_acls(acls)) if acls else self._remove([path])
            yield [*group, *self._notice(change_path(pattern), encode_acl_change(kind, pattern, name))]

    def _tokens(self, old: Mapping[str, DelegationToken], new: Mapping[str, DelegationToken]) -> Iterator[Group]:
        for token_id in {**old, **new}:
            token = new.get(token_id)
            if token != old.get(token_id):
                path = paths.child(paths.TOKENS, token_id)
                group = self._remove([path]) if token is None else self._put(path, encode_token(token))
                yield [*group, *self._notice(paths.TOKEN_CHANGE, token_id.encode())]

    # -- the tree --------------------------------------------------------------------------------------------------

    def _put(self, path: str, data: bytes) -> Group:
        return [SetData(path, data, ANY_VERSION)] if path in self._known else self._make(path, data)

    def _make(self, path: str, data: bytes) -> Group:
        group: Group = []
        for each in paths.parents(path):
            group += self._folder(each)
        self._known.add(path)
        self._learned.append((path, True))
        return [*group, Create(path, data)]

    def _folder(self, path: str) -> Group:
        return [] if path in self._known else self._make(path, b"")

    def _notice(self, prefix: str, data: bytes) -> Group:
        """The path of a notice is unknown to the writer: the server numbers it, and readers remove it."""
        return [*self._folder(prefix.rpartition("/")[0]), Create(prefix, data, sequential=True)]

    def _remove(self, removed: Iterable[str]) -> Group:
        group: Group = []
        for path in removed:
            if path in self._known:
                self._known.remove(path)
                self._learned.append((path, False))
                group.append(Delete(path))
        return group


def _loses_in_sync(old: PartitionImage | None, new: PartitionImage) -> bool:
    """Whether an in-sync replica is removed: then it has to leave the ISR first."""
    return old is not None and not set(old.isr) <= set(new.replicas)


def _between(
    before: Mapping[int, PartitionImage], after: Mapping[int, PartitionImage], changed: list[int]
) -> dict[int, Assignment]:
    """The interim assignment of such partitions while their states are written: old and new replicas."""
    found = {}
    for number in changed:
        old, new = before.get(number), after[number]
        if old is not None and _loses_in_sync(old, new):
            both = (*old.replicas, *(each for each in new.replicas if each not in old.replicas))
            found[number] = Assignment(both, old.adding_replicas, old.removing_replicas)
    return found


def _by_resource(image: MetadataImage) -> dict[AclResource, list[Acl]]:
    found: dict[AclResource, list[Acl]] = {}
    for acl in image.acls.values():
        found.setdefault((acl.resource_type, acl.pattern_type, acl.resource_name), []).append(acl)
    return found
