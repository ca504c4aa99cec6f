"""REST catalog of Iceberg with request timeouts: pyiceberg sets none on any of its requests.

A commit that timed out may have happened; `IcebergTarget` looks it up as after any other error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, UnauthorizedError
from pyiceberg.utils.config import Config, merge_config
from requests import RequestException, Session, Timeout

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
"""Timeout of each read: catalogs write a table's metadata to an object store before they answer a commit."""
MAX_WORDS = 300
"""Maximum characters of a reported error: a server that is not a catalog may answer with a page."""


class TimedRestCatalog(RestCatalog):  # type: ignore[misc]
    """pyiceberg's catalog with a timeout for each response, including that of a token request."""

    def _config_headers(self, session: Session) -> None:
        """First method that pyiceberg calls on a new session."""
        super()._config_headers(session)
        vars(session)["request"] = partial(session.request, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S))


def open_rest_catalog(name: str, url: str, properties: Mapping[str, str]) -> TimedRestCatalog:
    """Settings of pyiceberg's own configuration for the catalog apply too: PYICEBERG_CATALOG__NAME__TOKEN and others.

    Raises the errors of pyiceberg and requests.
    """
    configured: Any = Config().get_catalog_config(name) or {}
    return TimedRestCatalog(name, **merge_config(configured, {**properties, "uri": url}))


def words(error: Exception) -> str:
    """An error of a catalog, or of any other kind, in one line."""
    if isinstance(error, RequestException):
        return _words_of_request(error)
    found = next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)
    message = found if len(found) <= MAX_WORDS else f"{found[:MAX_WORDS]}..."
    if isinstance(error, UnauthorizedError | ForbiddenError):
        message += "; PYICEBERG_CATALOG__OTTLA__TOKEN, or __CREDENTIAL, in the environment logs in to the catalog"
    return message


def _words_of_request(error: RequestException) -> str:
    place = urlsplit(str(error.request.url)).netloc.rpartition("@")[2] if error.request is not None else ""
    if isinstance(error, Timeout):
        return f"the catalog at {place} did not answer in time"
    reason: BaseException | None = error
    while reason is not None and not (isinstance(reason, OSError) and reason.strerror):
        reason = reason.__cause__ or reason.__context__
    why = reason.strerror if isinstance(reason, OSError) else str(error)[:MAX_WORDS]
    return f"the catalog at {place} can't be reached: {why}"
