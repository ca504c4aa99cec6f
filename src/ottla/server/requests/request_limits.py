"""Limits of the items that one request may name: each costs time on the loop."""

from __future__ import annotations

from ottla.common.errors import ProtocolError
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS

UNKNOWN_PARTITIONS_PER_REQUEST = 1000
"""Partitions that a request may name in addition to the existing ones, for clients that know deleted topics."""

REQUEST_ELEMENTS = 20_000
"""Maximum of array elements in one request of a declared message; each takes microseconds of the loop."""
ELEMENTS_PER_PARTITION = 8
"""Additional elements per existing partition: a broker's request about one names its replicas too."""


class RequestLimits:
    """Limits that grow with the cluster."""

    __slots__ = ("_image", "_partition_limit", "_publisher")

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher
        self._partition_limit = UNKNOWN_PARTITIONS_PER_REQUEST
        self._image: MetadataImage | None = None

    def partition_limit(self) -> int:
        """Maximum of partitions in one request or fetch session: the existing ones, and a margin."""
        image = self._publisher.image
        if self._image is not image:
            self._image = image
            self._partition_limit = image.partition_count() + UNKNOWN_PARTITIONS_PER_REQUEST
        return self._partition_limit

    def check_partition_count(self, named: int) -> None:
        """Raise ProtocolError when a request names too many partitions."""
        if named > UNKNOWN_PARTITIONS_PER_REQUEST and named > self.partition_limit():
            raise ProtocolError(f"a request names {named} partitions, far more than exist")

    def element_limit(self) -> int:
        """Maximum of array elements in one request of APIs that don't count partitions themselves."""
        return min(MAX_REQUEST_ELEMENTS, REQUEST_ELEMENTS + ELEMENTS_PER_PARTITION * self.partition_limit())
