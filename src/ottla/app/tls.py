"""TLS of the listeners that a node opens or connects to, with keystores from real files."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.platform.files import read_file

if TYPE_CHECKING:
    from ottla.security.listener_tls import ListenerTls


def tls_of_listeners(config: BrokerConfig, *, serves_metrics: bool = False) -> Mapping[str, ListenerTls]:
    """By the name of each listener that encrypts, be it that of the metrics; nothing is loaded where none does.

    Raises OperatorError.
    """
    metrics = config.metrics_listener
    listeners = [each for each in (*config.spoken_listeners, *[metrics] * serves_metrics) if each.encrypts]
    if not listeners:
        return {}
    from ottla.security.listener_tls import ListenerTls  # here, since most brokers have none, and start faster

    opened = {metrics.name, *(each.listener_name for each in (*config.listeners, *config.controller_listeners))}
    return {
        each.name: ListenerTls(each.name, config, read_file, listens=each.name in opened, read_again=read_regular)
        for each in listeners
    }


def read_regular(path: str, limit: int) -> bytes:
    """`read_file` of one that keeps nobody waiting: who changes settings may name a pipe. Raises OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "it is no regular file")
    return read_file(path, limit)
