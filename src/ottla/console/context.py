"""`Context`: everything that a page may use for one request, and the errors that a page raises."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.responses import RedirectResponse, Response

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import GroupListing, TopicInfo
from ottla.common.errors import OttlaError
from ottla.common.kafka.integers import MAX_LONG
from ottla.common.platform.clock import Clock
from ottla.console.client_scrapes import ClientScrapes
from ottla.console.flow_meter import FlowMeter
from ottla.console.mask_policy import MaskPolicy
from ottla.console.openid import OpenIdProvider
from ottla.console.sessions import OpenCluster, Session, SessionStore
from ottla.console.settings import ConsoleSettings
from ottla.console.sign_in import SignInThrottle
from ottla.console.tables import TableIndex
from ottla.schemas.registry import SchemaRegistry

MAX_DIGITS = 19
MAX_PARTITION = 2**31 - 1


class PageError(OttlaError):
    """A request that a page cannot answer, with the HTTP status and a sentence for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientGone(Exception):
    """The browser has closed the connection, so the result is not needed."""


class Services(NamedTuple):
    """Objects that all requests share."""

    settings: ConsoleSettings
    sessions: SessionStore
    throttle: SignInThrottle
    clock: Clock
    open_cluster: OpenCluster
    flow: FlowMeter
    scrapes: ClientScrapes
    openid: OpenIdProvider | None = None
    """The issuer at which users sign in."""
    tables: TableIndex | None = None
    """None without a directory of tables."""
    names: frozenset[str] = frozenset()
    """Names of the pages that exist: in read-only mode, those that change something do not."""
    masks: MaskPolicy = MaskPolicy()
    registry: SchemaRegistry | None = None


class Parameters(NamedTuple):
    """Query, form or path fields of a request. Readers raise PageError 400 for bad values."""

    values: Mapping[str, Sequence[str]]

    def all(self, name: str) -> Sequence[str]:
        return self.values.get(name, ())

    def text(self, name: str, default: str = "") -> str:
        found = self.values.get(name)
        return found[0] if found else default

    def required(self, name: str) -> str:
        found = self.text(name)
        if not found:
            raise PageError(400, f"The field {name} is empty.")
        return found

    def number(self, name: str, default: int | None = None, *, most: int = MAX_LONG) -> int:
        """A number from 0 to `most`."""
        found = self.text(name).strip()
        if not found and default is not None:
            return default
        if not (found.isascii() and found.isdigit() and len(found) <= MAX_DIGITS and int(found) <= most):
            raise PageError(400, f"The field {name} must be a number from 0 to {most}.")
        return int(found)

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of `choices`; the first by default."""
        found = self.text(name, choices[0])
        if found not in choices:
            raise PageError(400, f"The field {name} must be one of {', '.join(choices)}.")
        return found

    def is_set(self, name: str) -> bool:
        return bool(self.text(name))


class Context:
    """One request of a session. Not shared between requests."""

    def __init__(
        self,
        services: Services,
        session: Session,
        query: Parameters,
        form: Parameters,
        path: Mapping[str, str],
        address: str,
        headers: Mapping[str, str],
    ) -> None:
        self.services = services
        self.settings = services.settings
        self.session = session
        self.query = query
        self.form = form
        self.path = path
        self.address = address
        """Address of the peer."""
        self.headers = headers
        self.audit: dict[str, Any] = {}
        """Fields for the audit log, besides user, page and outcome."""
        self.gone = threading.Event()
        """Set when the browser has closed the connection."""
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """A client with the credentials of the user."""
        if self._cluster is None:
            raise RuntimeError("the page has no cluster")
        return self._cluster

    def run(self, page: Callable[[Context], Response]) -> Response:
        """The response of a page that needs the cluster."""
        with self.session.client(self.services.open_cluster) as self._cluster:
            try:
                return page(self)
            finally:
                self._cluster = None

    def url(self, path: str, /, **query: object) -> str:
        """An address of the console; arguments that are None or empty are left out."""
        pairs = [
            (name.rstrip("_"), str(value))
            for name, values in query.items()
            for value in (values if isinstance(values, (list, tuple)) else (values,))
            if value is not None and value != ""
        ]
        return self.settings.base_path + path + (f"?{urlencode(pairs)}" if pairs else "")

    def topic_url(self, topic: str, below: str = "", /, **query: object) -> str:
        """An address of a page of a topic."""
        return self.url(f"/topics/{quote(topic, safe='')}{below}", **query)

    def redirect(self, url: str, notice: str | None = None) -> Response:
        """See another page after a change, with a sentence about it."""
        if notice is not None:
            self.session.add_notice(notice)
            self.session.forget_cached()
        return RedirectResponse(url, status_code=303)

    def offers(self, name: str) -> bool:
        """True if the page of this name exists: read-only mode has none that change something."""
        return name in self.services.names

    def topics(self) -> dict[str, TopicInfo]:
        """All topics that the user may see, at most `sessions.CACHE_S` old."""
        found: dict[str, TopicInfo] = self._cached("topics", self.cluster.topics.all)
        return found

    def groups(self) -> list[GroupListing]:
        """All groups that the user may see, at most `sessions.CACHE_S` old."""
        found: list[GroupListing] = self._cached("groups", self.cluster.groups.find)
        return found

    def _cached(self, name: str, compute: Callable[[], Any]) -> Any:
        return self.session.cached(name, self.services.clock.monotonic(), compute)

    def require_typed_name(self, name: str) -> None:
        """Raises PageError unless the user typed the name of the resource."""
        if self.form.text("confirm") != name:
            raise PageError(400, f"Nothing was changed: type {name} to confirm.")

    def require_version(self, current: str) -> None:
        """Raises PageError if the state differs from the one that the user saw."""
        if self.form.text("version") != current:
            raise PageError(409, "Nothing was changed: the state has changed since the page was loaded. Look again.")

    def check_alive(self) -> None:
        """Raises ClientGone when the browser has closed the connection."""
        if self.gone.is_set():
            raise ClientGone


def version_of(*parts: object) -> str:
    """A short fingerprint of the state that a page shows."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]
