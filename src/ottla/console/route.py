"""`Route`: one row of the route table."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from starlette.responses import Response

from ottla.console.context import Context


class Operation(Enum):
    """Effect of a request on the cluster, which selects its checks."""

    PUBLIC = "public"
    """Needs no sign-in and reaches no cluster."""
    READ = "read"
    """Shows metadata."""
    READ_RECORDS = "read records"
    """Shows or downloads records; audited."""
    PREPARE = "prepare"
    """Shows the form or the preview of a change; audited, absent in read-only mode."""
    WRITE = "write"
    """Changes the cluster; audited, absent in read-only mode."""
    DESTROY = "destroy"
    """Deletes or overwrites something: needs the typed name and the version that the user saw; audited, absent in
    read-only mode."""

    @property
    def is_of_change(self) -> bool:
        """True if the row does not exist in read-only mode."""
        return self in (Operation.PREPARE, Operation.WRITE, Operation.DESTROY)

    @property
    def is_audited(self) -> bool:
        return self is Operation.READ_RECORDS or self.is_of_change


class Route(NamedTuple):
    """`name` is unique; links are shown only if the row of that name exists."""

    method: str
    path: str
    name: str
    page: Callable[[Context], Response]
    operation: Operation
    setting: str | None = None
    """Setting of the operator without which the row does not exist."""
