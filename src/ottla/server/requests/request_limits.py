"""How much one request may name: each thing costs an answer, made while all others wait."""

from __future__ import annotations

from ottla.common.errors import ProtocolError
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.codec import MAX_REQUEST_ELEMENTS

UNKNOWN_PARTITIONS_PER_REQUEST = 1000
"""A request may name so many partitions more than there are, for clients that know of topics deleted since."""

REQUEST_ELEMENTS = 20_000
"""Elements of arrays in one request of a declared message; each takes microseconds, while all others wait."""
ELEMENTS_PER_PARTITION = 8
"""So many more for each partition that there is: an answer of a broker about one names its replicas too."""


class RequestLimits:
    """Limits that grow with the cluster."""

    __slots__ = ("_image", "_partition_limit", "_publisher")

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher
        self._partition_limit = UNKNOWN_PARTITIONS_PER_REQUEST
        self._image: MetadataImage | None = None

    def partition_limit(self) -> int:
        """How many partitions one request or fetch session may name: those that there are, and some more."""
        image = self._publisher.image
        if self._image is not image:
            self._image = image
            self._partition_limit = image.partition_count() + UNKNOWN_PARTITIONS_PER_REQUEST
        return self._partition_limit

    def check_partition_count(self, named: int) -> None:
        """Raise ProtocolError when a request names too many."""
        if named > UNKNOWN_PARTITIONS_PER_REQUEST and named > self.partition_limit():
            raise ProtocolError(f"a request names {named} partitions, far more than there are")

    def element_limit(self) -> int:
        """How many elements of arrays one request may have in APIs that don't count partitions themselves."""
        return min(MAX_REQUEST_ELEMENTS, REQUEST_ELEMENTS + ELEMENTS_PER_PARTITION * self.partition_limit())
