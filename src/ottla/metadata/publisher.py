"""Hands each new committed image to those who act on it, in the order in which they registered.

Invariant: `image` is the newest committed image, and listeners see images in log order with nothing left out. It is
switched before the listeners run, so a listener that asks for the image gets the one it was called with. A listener
that raises stops the publication: the broker's parts would disagree about the cluster, which is no state to go on in.
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

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._listeners: list[Listener] = []

    def register(self, listener: Listener) -> None:
        """Call `listener(image, changes)` for every image from now on."""
        self._listeners.append(listener)

    def publish(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Make `image` the current one; raises InvariantError when it is older than the current one."""
        if image.offset < self.image.offset:
            raise InvariantError(f"metadata image at {image.offset} follows the one at {self.image.offset}")
        self.image = image
        for listener in self._listeners:
            listener(image, changes)
