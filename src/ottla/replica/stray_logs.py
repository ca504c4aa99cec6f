"""Logs on the disks of this broker that are not its replicas, found at the start."""

from __future__ import annotations

import logging

from ottla.common.errors import KafkaError
from ottla.common.kafka.ids import Uuid, uuid_to_string
from ottla.common.runbooks import STRAY_PARTITIONS
from ottla.metadata.image import MetadataImage
from ottla.storage.directory.log_manager import LogManager

logger = logging.getLogger(__name__)


def quarantine_stray_logs(logs: LogManager, node_id: int, image: MetadataImage) -> None:
    """Rename logs that do not belong to this broker: of topics unknown to the cluster (a deletion that a crash
    interrupted, or foreign data), and of replicas that moved to other brokers while this one was down.

    They would conflict with a new topic of that name. They are not removed, since only the operator can decide that. A
    log with a topic id one character off is this broker's own log with a damaged id, which is corrected.
    """
    for log in logs.all_logs():
        topic = image.topic(log.topic)
        partition = None if topic is None else topic.partitions.get(log.partition)
        if topic is not None and log.topic_id is not None and _is_flipped(log.topic_id, topic.topic_id):
            found, right = uuid_to_string(log.topic_id), uuid_to_string(topic.topic_id)
            logger.warning("%s: partition.metadata had topic id %s, corrected to %s", log.name, found, right)
            try:
                log.assign_topic_id(topic.topic_id)
            except KafkaError as error:
                logger.error("%s", error)
                continue
        if topic is None or partition is None or log.topic_id not in (None, topic.topic_id):
            reason = "belongs to no topic of this cluster"
        elif node_id not in partition.replicas:
            reason = "has its replicas on other brokers now"
        else:
            continue
        try:
            key = (log.topic, log.partition)
            is_copy = log is logs.futures.get(key)
            directory = logs.futures.set_aside(key) if is_copy else logs.set_aside(*key)
        except KafkaError as error:
            logger.error("%s", error)
            continue
        logger.warning("%s %s; its data was moved to %s. See %s.", log.name, reason, directory, STRAY_PARTITIONS)


def _is_flipped(found: Uuid, topic_id: Uuid) -> bool:
    """Return whether two ids differ by one character in `partition.metadata`: random ids are never that similar."""
    if found == topic_id:
        return False
    pairs = zip(uuid_to_string(found), uuid_to_string(topic_id), strict=True)
    return sum(one != other for one, other in pairs) == 1
