"""APIs that the transaction coordinator decides: it answers each request once, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.protocol.registry import ApiKey
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.requests.api import ErrorResponse, Guard, SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Division


class TransactionCall(Protocol):
    """A method of the transaction coordinator for one API.

    Implementations: methods of `coordinator.transaction.coordinator.TransactionCoordinator`; the row of the API names
    its method.
    """

    def __call__(
        self, coordinator: TransactionCoordinator, api_version: int, message: Any, respond: Callable[[Any], None], /
    ) -> None:
        """Call `respond` once with the response, now or later."""


def coordinated(
    key: ApiKey,
    ask: TransactionCall,
    error_response: ErrorResponse,
    *,
    needs: RequiredPermission | None = None,
    item_needs: tuple[RequiredPermission, ...] = (),
    guard: Guard[TransactionContext] | None = None,
    divisions: tuple[Division, ...] = (),
) -> SchemaApi[TransactionContext]:
    """API whose response comes from the coordinator."""

    def handle(context: TransactionContext, request: Request, message: Any) -> None:
        ask(context.coordinator, request.api_version, message, request.answer_with)

    return SchemaApi(key, handle, error_response, needs=needs, item_needs=item_needs, guard=guard).divided(*divisions)
