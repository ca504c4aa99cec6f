"""The directory in which a stream keeps how far it is: Spark's checkpoint, and what has to stay as it was beside it.

`spark/` is the checkpoint of Spark's query. `stream.json` holds the definition that the stream was begun with and the
fields that its sources settled on (of a sample, where no schema was given), since state that is kept under one schema
can't be read under another. `letters/` and `epochs/` are of the batch that runs. One process at a time has it (`lock`).
`results.json` says what the results have for sure. So results that were put back are known, though a batch without rows
leaves nothing in a table. `owner` is a number that no other directory has, which the results keep: a stream that is
begun a second time in another directory cuts its batches elsewhere, and by their numbers alone each would take those of
the other for its own.

**Invariants:** a directory belongs to one definition, and results to one directory; one that is older or newer than the
results, or lost its table, is refused before a record is read, as going on with it would double results or lack them.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.common.errors import DAMAGED_JSON, OperatorError
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.stores.durable import write_durably
from ottla.pipeline.stream.definition import StreamDefinition

DEFAULT_DIRECTORY = ".ottla-streams"
_CHANGEABLE = frozenset({"trigger", "max_records", "on_data_loss", "format", "partition_by"})
"""What may be another from run to run."""


def pipeline_id(name: str) -> str:
    """Under which a table knows a stream."""
    return f"stream/{name}"


def owner_id(name: str) -> str:
    """The application id whose version tells of which directory a stream's results are."""
    return f"{pipeline_id(name)}/owner"


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest batch that Spark planned and the newest that it ended, -1 without one."""

    planned: int
    ended: int


@dataclass(frozen=True, slots=True)
class KeptResults:
    """What is known of the results without asking them."""

    next_batch: int = 0
    """The number behind the newest batch that came into the table."""
    topic_id: str = ""
    """Of the topic that has the results."""


@dataclass(slots=True)
class StreamState:
    """One directory, held by this process. Only `settle` and `keep_results` change it."""

    path: Path
    owner: int
    """Of 63 bits, as a table can keep it beside offsets."""
    fields: dict[str, pa.Schema] = field(default_factory=dict)
    """By source: those that its values were settled to have."""
    cluster_id: str = ""
    """Of the cluster that the stream was begun on; empty where that is not kept."""

    @property
    def checkpoint(self) -> Path:
        return self.path / "spark"

    @property
    def letters(self) -> Path:
        """Where tasks leave dead letters for the driver."""
        return self.path / "letters"

    @property
    def epochs(self) -> Path:
        """Rows of a batch that are settled before they are sent."""
        return self.path / "epochs"

    def progress(self) -> Progress:
        """As Spark's logs have it. Raises OperatorError."""
        return Progress(_newest(self.checkpoint / "offsets"), _newest(self.checkpoint / "commits"))

    def offsets(self, batch: int) -> list[dict[str, Any]]:
        """Where each source ended in a batch, as the source wrote it; nothing where that can't be told.

        Spark's log of offsets: a version, a line of metadata, a line for each source.
        """
        try:
            lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
            found = [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError):
            return []
        return [one for one in found if isinstance(one, dict)]

    def kept_results(self) -> KeptResults:
        """Nothing of a state of an earlier release. Raises OperatorError."""
        try:
            return KeptResults(**json.loads((self.path / "results.json").read_text()))
        except FileNotFoundError:
            return KeptResults()
        except (OSError, *DAMAGED_JSON) as error:
            raise OperatorError(f"{self.path / 'results.json'} can't be read: {os_reason(error)}") from error

    def keep_results(self, kept: KeptResults) -> None:
        """Raises OperatorError."""
        try:
            write_durably(self.path / "results.json", json.dumps(asdict(kept)))
        except OSError as error:
            raise OperatorError(f"the stream's directory {self.path} can't be written: {os_reason(error)}") from error

    def require_own(self, owner: int | None, place: str, stream: str) -> None:
        """Raise OperatorError where results are of another directory; those of a release before tell none."""
        if owner not in (None, self.owner):
            raise OperatorError(
                f"the {place} has results of a stream {stream!r} whose state is not {self.path}, and both would mix: "
                "go on with that one alone, by --checkpoint where it lies elsewhere, or give this one another name and "
                "its results another place"
            )

    def settle(self, definition: StreamDefinition, fields: Mapping[str, pa.Schema], cluster_id: str) -> None:
        """Keep what the stream was begun with. Raises OperatorError."""
        held = {name: base64.b64encode(schema.serialize()).decode() for name, schema in fields.items()}
        text = json.dumps({"definition": _canonical(definition), "fields": held, "cluster": cluster_id}, indent=1)
        try:
            write_durably(self.path / "stream.json", text)
        except OSError as error:
            raise OperatorError(f"the stream's directory {self.path} can't be written: {os_reason(error)}") from error
        self.fields.update(fields)
        self.cluster_id = cluster_id

    def require_cluster(self, definition: StreamDefinition, cluster_id: str) -> None:
        """Raise OperatorError where the stream was begun on another cluster, of whose records the checkpoint tells."""
        if self.cluster_id and cluster_id and self.cluster_id != cluster_id:
            raise OperatorError(
                f"the stream {definition.name!r} was begun on the cluster {self.cluster_id}, and the one that "
                f"--bootstrap-server names is {cluster_id}: name the cluster {self.cluster_id}, or begin anew on "
                f"{cluster_id} with another name and another place for the results"
            )


@contextmanager
def held_state(path: Path, definition: StreamDefinition) -> Iterator[StreamState]:
    """Hold the directory of a stream, made where it is not there. Raises OperatorError when another process has it, or
    it is another definition's."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OperatorError(f"the stream's directory {path} can't be used: {os_reason(error)}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OperatorError(f"the stream {definition.name!r} runs in another process, which has {path}") from error
        except OSError as error:  # of file systems that have no locks
            raise OperatorError(f"the stream's directory {path} can't be locked: {os_reason(error)}") from error
        settled = _settled(path, definition)
        yield StreamState(path.absolute(), _owner(path), *settled)
    finally:
        os.close(descriptor)


def _settled(path: Path, definition: StreamDefinition) -> tuple[dict[str, pa.Schema], str]:
    """The fields that the stream settled on and the id of its cluster; none before its first batch, until which it may
    be any other."""
    if _newest(path / "spark" / "offsets") < 0:
        return {}, ""
    try:
        held = json.loads((path / "stream.json").read_text())
        before = held["definition"]
        fields = {name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one))) for name, one in held["fields"].items()}
    except FileNotFoundError:
        raise OperatorError(
            f"{path} has a checkpoint without stream.json, which tells whose it is; put that back, or name another "
            "directory with --checkpoint"
        ) from None
    except (OSError, *DAMAGED_JSON) as error:
        raise OperatorError(f"{path / 'stream.json'} can't be read: {os_reason(error)}") from error
    changed = _difference(before, _canonical(definition))
    if changed:
        raise OperatorError(
            f"{path} is the state of another definition, which differs in {changed}: undo that, or begin anew with "
            "another name and another place for the results"
        )
    return fields, str(held.get("cluster", ""))


def _owner(path: Path) -> int:
    """The number of a directory, which gets one where it has none."""
    try:
        return int((path / "owner").read_text())
    except FileNotFoundError:
        number = uuid.uuid4().int >> 65
    except (OSError, ValueError) as error:
        raise OperatorError(f"{path / 'owner'} can't be read: {os_reason(error)}") from error
    try:
        write_durably(path / "owner", str(number))
    except OSError as error:
        raise OperatorError(f"the stream's directory {path} can't be written: {os_reason(error)}") from error
    return number


def _canonical(definition: StreamDefinition) -> dict[str, Any]:
    """As JSON keeps it, without what may change."""

    def kept(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: kept(one) for name, one in value.items() if name not in _CHANGEABLE}
        return [kept(one) for one in value] if isinstance(value, list | tuple) else value

    found: dict[str, Any] = json.loads(json.dumps(kept(asdict(definition)), default=lambda path: path.name))
    return found


def _difference(before: Any, now: Any, where: str = "") -> str:
    """The first place that differs, as the file names it."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return "" if before == now else where
    found = (_difference(before.get(name), now.get(name), f"{where}.{name}".lstrip(".")) for name in {**now, **before})
    return next((place for place in found if place), "")


def _newest(log: Path) -> int:
    """The highest number among the files of one of Spark's logs. Raises OperatorError."""
    try:
        return max((int(path.name) for path in log.iterdir() if path.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise OperatorError(f"the checkpoint {log} can't be read: {os_reason(error)}") from error
