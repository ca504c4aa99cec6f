"""Registration of a controller: its listeners and supported features (KIP-919).

It has no influence on elections: administrators find controllers by it, and a feature is finalized only if all of them
support it. Each start is a new incarnation, which is registered until the metadata has it, and again if it is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.common.config.feature_levels import CONTROLLER_REGISTRATION
from ottla.common.kafka.ids import Uuid
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Scheduler, TimerHandle
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import ControllerRequests
from ottla.metadata.image import MetadataImage, metadata_level
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import REGISTERED_FEATURES
from ottla.metadata.snapshot import endpoint_rows, feature_rows
from ottla.protocol.messages.controller_registration import (
    ControllerFeatureRange,
    ControllerListener,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 10.0


class ControllerLifecycle:
    """The registration of this node's controller; all methods run on the loop."""

    __slots__ = (
        "_busy",
        "_controller",
        "_ended",
        "_publisher",
        "_registered",
        "_request",
        "_retry_s",
        "_scheduler",
        "_timer",
    )

    def __init__(
        self,
        node_id: int,
        incarnation_id: Uuid,
        endpoints: Sequence[Endpoint],
        controller: ControllerRequests,
        publisher: MetadataPublisher,
        scheduler: Scheduler,
        *,
        zk_migration_ready: bool = False,
    ) -> None:
        """`endpoints` of the controller, as advertised. `zk_migration_ready`: it could lead a migration (KIP-866)."""
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation_id,
            listeners=endpoint_rows(ControllerListener, endpoints),
            features=feature_rows(ControllerFeatureRange, REGISTERED_FEATURES),
            zk_migration_ready=zk_migration_ready,
        )
        self._controller = controller
        self._publisher = publisher
        self._scheduler = scheduler
        self._registered: Callable[[], None] | None = None
        self._busy = False
        self._ended = False
        self._retry_s = FIRST_RETRY_S
        self._timer: TimerHandle | None = None

    def start(self, registered: Callable[[], None]) -> None:
        """Register, and call `registered` once the metadata published here has the registration."""
        self._registered = registered
        self._publisher.register(lambda _image, _changes: self._act())
        self._act()

    def end(self) -> None:
        """Stop sending requests."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _act(self) -> None:
        """Send a due request, unless a response or a pause is pending."""
        image = self._publisher.image
        if self._ended or image.offset < 0:
            return
        if self._is_known(image):
            registered, self._registered = self._registered, None
            if registered is not None:
                # Not within the publication: the callback may register listeners of its own.
                self._scheduler.call_soon(registered)
        elif not self._busy and self._timer is None:
            self._busy = True
            self._controller.send(self._request, self._answered, TIMEOUT_S)

    def _is_known(self, image: MetadataImage) -> bool:
        """Whether the metadata has the registration; an old level has no controllers, and a raised one triggers it."""
        known = image.controllers.get(self._request.controller_id)
        if known is None:
            return metadata_level(image) < CONTROLLER_REGISTRATION
        return known.incarnation_id == self._request.incarnation_id

    def _answered(self, response: ControllerRegistrationResponse | None, error: BaseException | None) -> None:
        self._busy = False
        if self._ended:
            return
        if response is not None:
            self._retry_s = FIRST_RETRY_S
        else:
            logger.debug("controller registration failed, retrying: %s", error, extra=RATE_LIMITED)
        # Also after a success: the metadata may still be in flight, or lost with the controller that answered.
        self._timer = self._scheduler.call_later(self._retry_s, self._rested)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    def _rested(self) -> None:
        self._timer = None
        self._act()
