"""TLS of the listeners and connections of a node, with keystores from files. Changes at run time: `listener_tls`."""

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
    """TLS settings by name of each encrypting listener, including metrics; nothing is loaded if there is none.

    Raises OperatorError.
    """
    metrics = config.metrics_listener
    listeners = [each for each in (*config.spoken_listeners, *[metrics] * serves_metrics) if each.encrypts]
    if not listeners:
        return {}
    from ottla.security.listener_tls import ListenerTls  # imported here: most brokers have none and start faster

    opened = {metrics.name, *(each.listener_name for each in (*config.listeners, *config.controller_listeners))}
    return {
        each.name: ListenerTls(each.name, config, read_file, listens=each.name in opened, read_again=read_regular)
        for each in listeners
    }


def read_regular(path: str, limit: int) -> bytes:
    """Read a regular file; a setting that names a pipe must not block. Raises OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a regular file")
    return read_file(path, limit)
