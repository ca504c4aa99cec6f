"""Passes each new committed image to its listeners, in order of registration.

Invariant: `image` is the newest committed image, and listeners see images in log order without gaps. It is switched
before the listeners run, so a listener that reads the image gets the one that it was called with. A listener that
raises stops the publication: the broker must not continue with components that disagree about the cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import InvariantError
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage

Listener = Callable[[MetadataImage, MetadataChanges], None]


class MetadataPublisher:
    """Owner of the broker's current image."""

    __slots__ = ("_listeners", "image")

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self._listeners: list[Listener] = []

    def register(self, listener: Listener) -> None:
        """Call `listener(image, changes)` for every image from now on."""
        self._listeners.append(listener)

    def publish(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Make `image` the current one; raises InvariantError if it is older than the current one."""
        if image.offset < self.image.offset:
            raise InvariantError(
                f"metadata image at offset {image.offset} is older than the current one at {self.image.offset}"
            )
        self.image = image
        for listener in self._listeners:
            listener(image, changes)
