"""Logs leaderless partitions with a live replica, once each, with cause and remedy."""

from __future__ import annotations

import logging

from ottla.metadata.image import EMPTY_IMAGE, MetadataImage

logger = logging.getLogger(__name__)

MAX_NAMED = 20
"""Maximum number of partitions that one check logs by name; the rest is logged as a count."""

Place = tuple[str, int]


class LeaderlessPartitions:
    """Leaderless partitions of the last check, and those that were logged."""

    __slots__ = ("_image", "_leaderless", "_logged")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop the state; called when this controller becomes active."""
        self._image = EMPTY_IMAGE
        self._leaderless: set[Place] = set()
        self._logged: set[Place] = set()

    def look(self, image: MetadataImage) -> None:
        """Log partitions that were also leaderless at the previous check: an election takes less than a session."""
        before = self._leaderless
        if image is not self._image:
            self._image, self._leaderless = image, _leaderless(image)
            self._logged &= self._leaderless
        due = sorted((self._leaderless & before) - self._logged)
        self._logged.update(due)
        if due:
            from ottla.controller.elections import cause_without_leader  # imported here: rare
            from ottla.controller.replication import active
        for name, index in due[:MAX_NAMED]:
            partition = image.topics[name].partitions[index]
            logger.warning("%s-%d: %s", name, index, cause_without_leader(name, index, partition, active(image)))
        if len(due) > MAX_NAMED:
            logger.warning(
                "%d more partitions have no leader: see 'ottla cluster describe' and 'ottla topic describe'",
                len(due) - MAX_NAMED,
            )


def _leaderless(image: MetadataImage) -> set[Place]:
    from ottla.controller.replication import active  # imported here: a single node has no sessions to check

    is_live = active(image)
    return {
        (name, index)
        for name, topic in image.topics.items()
        for index in topic.leaderless
        if any(map(is_live, topic.partitions[index].replicas))
    }
