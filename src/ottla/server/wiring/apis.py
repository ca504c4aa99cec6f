"""APIs of a node's listeners: the tables of the handler packages with their contexts."""

from __future__ import annotations

from ottla.server.handlers.admin.apis import ADMIN_APIS
from ottla.server.handlers.data.apis import DATA_APIS
from ottla.server.handlers.groups.apis import GROUP_APIS
from ottla.server.handlers.quorum.administration import QUORUM_ADMIN_APIS
from ottla.server.handlers.share.apis import SHARE_APIS
from ottla.server.handlers.share.partition_apis import SHARE_PARTITION_APIS
from ottla.server.handlers.transactions.apis import TRANSACTION_APIS
from ottla.server.requests.api import ApiBinding, Listeners, served_on
from ottla.server.wiring.contexts import Contexts


def broker_apis(contexts: Contexts) -> list[ApiBinding]:
    """The APIs of a broker's listener."""
    listener = Listeners.BROKER
    served = [
        *served_on(listener, DATA_APIS, contexts.data),
        *served_on(listener, GROUP_APIS, contexts.groups),
        *served_on(listener, TRANSACTION_APIS, contexts.transactions),
        *served_on(listener, SHARE_APIS, contexts.share),
        *served_on(listener, SHARE_PARTITION_APIS, contexts.share_partitions),
        *served_on(listener, ADMIN_APIS, contexts.admin),
    ]
    if contexts.quorum is not None:
        served += served_on(listener, QUORUM_ADMIN_APIS, contexts.quorum)
    if contexts.telemetry is not None:
        from ottla.server.handlers.telemetry.apis import TELEMETRY_APIS  # imported here, as below

        served += served_on(listener, TELEMETRY_APIS, contexts.telemetry)
    if contexts.zookeeper is not None:
        from ottla.server.handlers.quorum.on_zookeeper import served_between_brokers  # imported here, as below

        served = served_between_brokers(served, contexts.zookeeper)
    if contexts.zookeeper_offsets is not None:
        from ottla.server.handlers.groups.zookeeper_offsets import with_zookeeper_offsets  # imported here, as below

        served = with_zookeeper_offsets(served, contexts.zookeeper_offsets)
    return served


def controller_apis(contexts: Contexts) -> list[ApiBinding]:
    """The APIs of a controller's listener: nodes, the metadata quorum, and requests forwarded by brokers."""
    from ottla.server.handlers.quorum.apis import QUORUM_APIS  # imported here: a single node starts faster without it

    listener = Listeners.CONTROLLER
    served = served_on(listener, ADMIN_APIS, contexts.admin)
    if contexts.quorum is not None:
        served += served_on(listener, (*QUORUM_APIS, *QUORUM_ADMIN_APIS), contexts.quorum)
    return served
