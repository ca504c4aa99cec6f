"""Differences between any two images: for a replica that loaded a snapshot instead of the records in between.

Invariant: applying the changes brings a listener from the old image to the new one. A topic that was deleted and
recreated under its name appears as both.
"""

from __future__ import annotations

from ottla.metadata.delta import MetadataChanges, all_changes
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage


def changes_between(old: MetadataImage, new: MetadataImage) -> MetadataChanges:
    """Compare everything; the cost is that of the whole image."""
    changes = MetadataChanges()
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            changes.deleted_topics.append(topic)
    changed: list[tuple[TopicImage, int]] = []
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if before is None:
            changes.created_topics.append(topic)
        known = {} if before is None else before.partitions
        changed += [(topic, index) for index, partition in topic.partitions.items() if known.get(index) != partition]
    changes.changed_partitions = changed
    resources = dict.fromkeys([*old.configs, *new.configs])
    changes.changed_configs = [item for item in resources if old.configs.get(item) != new.configs.get(item)]
    changes.brokers_changed = dict(old.brokers) != dict(new.brokers)
    changes.acls_changed = dict(old.acls) != dict(new.acls)
    return changes


def changes_since(published: MetadataImage, new: MetadataImage) -> MetadataChanges:
    """Return the changes for listeners that received `published` last; all of `new` if that is the empty image."""
    return all_changes(new) if published is EMPTY_IMAGE else changes_between(published, new)
