"""What a node's listeners serve: the rows of all rooms that say so, each with the context of its room."""

from __future__ import annotations

from ottla.server.api import Listeners, Served, served_on
from ottla.server.context import BrokerContext
from ottla.server.handlers.admin.apis import ADMIN_APIS
from ottla.server.handlers.data.apis import DATA_APIS
from ottla.server.handlers.groups.apis import GROUP_APIS


def broker_apis(context: BrokerContext) -> list[Served]:
    """What a broker's listener serves."""
    listener = Listeners.BROKER
    return [
        *served_on(listener, DATA_APIS, context),
        *served_on(listener, GROUP_APIS, context),
        *served_on(listener, ADMIN_APIS, context),
    ]


def controller_apis(context: BrokerContext) -> list[Served]:
    """What a controller's listener serves: nodes, the quorum of the metadata log, and what brokers hand on."""
    from ottla.server.handlers.quorum.apis import QUORUM_APIS  # here, since a single node starts faster without it

    listener = Listeners.CONTROLLER
    return [*served_on(listener, ADMIN_APIS, context), *served_on(listener, QUORUM_APIS, context)]
