"""Compacted topics are accepted and only grow, since there is no log cleaner yet: the log of the broker says so."""

from __future__ import annotations

import logging

from ottla.common.config_def import ConfigResourceType
from ottla.common.logs import RATE_LIMITED
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import INTERNAL_TOPICS

logger = logging.getLogger(__name__)

POLICY = "cleanup.policy"


def warn_of_compacted_topics(image: MetadataImage, changes: MetadataChanges) -> None:
    """One warning for each topic of clients that asked for compaction since the last image."""
    for resource in changes.changed_configs:
        name = resource.name
        if resource.type is not ConfigResourceType.TOPIC or name in INTERNAL_TOPICS or image.topic(name) is None:
            continue
        if "compact" in image.topic_configs(name).get(POLICY, ""):
            logger.warning(
                "topic %s has %s=%s, but there is no log cleaner yet: it is not compacted and keeps growing",
                name,
                POLICY,
                image.topic_configs(name)[POLICY],
                extra=RATE_LIMITED,
            )
