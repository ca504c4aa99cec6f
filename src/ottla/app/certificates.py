"""Warnings before the certificates of a node expire: in the log once a day, and as a metric."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.common.certificate_expiry import ERROR_DAYS, WARNING_DAYS, date_text, days_left
from ottla.common.platform.clock import Scheduler
from ottla.metrics.registry import MetricsRegistry
from ottla.security.listener_tls import ListenerTls

logger = logging.getLogger(__name__)

CHECK_S = 86_400.0
METRIC = "ottla_tls_certificate_expiry_timestamp_seconds"


class CertificateWatch:
    """Checks the certificates of all listeners of a node at the start and once a day."""

    def __init__(
        self,
        listeners: Iterable[ListenerTls],
        scheduler: Scheduler,
        registry: MetricsRegistry,
        time_s: Callable[[], float],
    ) -> None:
        """`time_s` returns seconds since the epoch."""
        self._listeners = [each for each in listeners if each.expiry_s is not None]
        self._scheduler = scheduler
        self._time_s = time_s
        for each in self._listeners:
            registry.gauge(
                METRIC,
                "End of the validity of the certificate of a listener, in seconds since the epoch",
                {"listener": each.name},
                partial(_expiry_s, each),
            )

    def begin(self) -> None:
        """Check now, and again each day."""
        for each in self._listeners:
            self._check(each.name, _expiry_s(each))
        self._scheduler.call_later(CHECK_S, self.begin)

    def _check(self, name: str, expiry_s: float) -> None:
        days = days_left(expiry_s, self._time_s())
        if days > WARNING_DAYS:
            return
        level = logging.WARNING if days > ERROR_DAYS else logging.ERROR
        when = f"expires in {days} days" if days > 0 else "has expired or expires today"
        logger.log(
            level,
            "the certificate of listener %s %s (%s): replace it, for example with `ottla security renew`",
            name,
            when,
            date_text(expiry_s),
        )


def _expiry_s(listener: ListenerTls) -> float:
    return listener.expiry_s or 0.0
