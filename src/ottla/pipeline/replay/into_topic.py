"""Target topic of a replay."""

from __future__ import annotations

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import TopicInfo
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.operations.push import group_name, progress_in
from ottla.pipeline.replay.ranges import Bound, topic_ranges
from ottla.pipeline.sources.rows import TopicRows


def require_own_topic(cluster: Cluster, name: str, replay_id: str, partitions: int) -> None:
    """Create the target with that many partitions unless it exists.

    Raises OperatorError when it has records that are not of this replay.
    """
    try:
        topic = cluster.topics.get(name)
    except TopicNotFound:
        cluster.topics.create(name, partitions)
        return
    begun = progress_in(uuid_to_string(topic.topic_id), cluster.groups.offsets(group_name(replay_id)))
    if not begun and _has_records(cluster, topic):
        raise OperatorError(
            f"topic {name!r} has records that are not of the replay {replay_id!r}: a replay needs a target of its own; "
            "name a new topic, or the --replay-id that wrote them"
        )


def _has_records(cluster: Cluster, topic: TopicInfo) -> bool:
    """True for committed records: a replay that was killed in its first transaction leaves uncommitted ones."""
    positions = [(topic.name, info.index) for info in topic.partitions]
    ranges = topic_ranges(cluster, positions, Bound("earliest"), Bound("latest"))
    rows = TopicRows(cluster, ranges, "", None, keep_timestamps=False)
    return any(batch.num_rows for batch, _ in rows.batches({}))
