"""State directory of a stream: Spark's checkpoint, and the settings that must not change.

`spark/` is the checkpoint of Spark's query. `stream.json` contains the definition with which the stream was started and
the fields of its sources (inferred from a sample if no schema was given), since state under one schema can't be read
under another. `letters/` and `epochs/` belong to the running batch. One process at a time holds the `lock`.
`results.json` records the progress that the results must have. It reveals results that were rolled back, even though a
batch without rows changes nothing in a table. `owner` is a unique number of the directory, which the results store too:
a stream that is started a second time in another directory forms other batches, and by their numbers alone each of both
would take the other's batches for its own.

**Invariants:** a directory belongs to one definition, and results to one directory. A directory that is older or newer
than the results, or lost its table, is refused before a record is read, since continuing would duplicate or lose
results.
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
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.pipeline.stores.durable import write_durably
from ottla.pipeline.stream.definition import StreamDefinition

DEFAULT_DIRECTORY = ".ottla-streams"
_CHANGEABLE = frozenset({"trigger", "max_records", "on_data_loss", "format", "partition_by"})
"""Keys that may change between runs."""


def pipeline_id(name: str) -> str:
    """The pipeline id of a stream in a table."""
    return f"stream/{name}"


def owner_id(name: str) -> str:
    """Application id whose version identifies the state directory of a stream's results."""
    return f"{pipeline_id(name)}/owner"


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest batch that Spark planned and the newest that it ended, -1 without one."""

    planned: int
    ended: int


@dataclass(frozen=True, slots=True)
class KeptResults:
    """Expected progress of the results, known without reading them."""

    next_batch: int = 0
    """Next batch of the table, after the newest one with a commit."""
    topic_id: str = ""
    """Id of the topic with the results."""


@dataclass(slots=True)
class StreamState:
    """One directory, locked by this process. Only `settle` and `keep_results` change it."""

    path: Path
    owner: int
    """63 bits, so that a table can store it like an offset."""
    fields: dict[str, pa.Schema] = field(default_factory=dict)
    """Fields of the values, by source."""
    cluster_id: str = ""
    """Id of the cluster on which the stream was started; empty if it is not recorded."""

    @property
    def checkpoint(self) -> Path:
        return self.path / "spark"

    @property
    def letters(self) -> Path:
        """Directory in which tasks leave dead letters for the driver."""
        return self.path / "letters"

    @property
    def epochs(self) -> Path:
        """Rows of a batch that are written before they are sent."""
        return self.path / "epochs"

    def progress(self) -> Progress:
        """Progress in Spark's logs. Raises OperatorError."""
        return Progress(_newest(self.checkpoint / "offsets"), _newest(self.checkpoint / "commits"))

    def offsets(self, batch: int) -> list[dict[str, Any]]:
        """End offsets of each source in a batch, as the source wrote them; empty if the log can't be read.

        Spark's log of offsets: a version, a line of metadata, a line for each source.
        """
        try:
            lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
            found = [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError):
            return []
        return [one for one in found if isinstance(one, dict)]

    def kept_results(self) -> KeptResults:
        """Return the stored results; empty for a state of an earlier release. Raises OperatorError."""
        try:
            return KeptResults(**json.loads((self.path / "results.json").read_text()))
        except FileNotFoundError:
            return KeptResults()
        except (OSError, *DAMAGED_JSON) as error:
            raise OperatorError(f"{self.path / 'results.json'} can't be read: {os_reason(error)}") from error

    def keep_results(self, kept: KeptResults) -> None:
        """Store these results durably. Raises OperatorError."""
        try:
            write_durably(self.path / "results.json", json.dumps(asdict(kept)))
        except OSError as error:
            raise OperatorError(f"the stream's directory {self.path} can't be written: {os_reason(error)}") from error

    def require_own(self, owner: int | None, place: str, stream: str) -> None:
        """Raise OperatorError for results of another directory; those of an earlier release have no owner."""
        if owner not in (None, self.owner):
            raise LoadRefusedError(
                f"the {place} has results of a stream {stream!r} with another state than {self.path}, and both would "
                "mix: name the directory of that state with --checkpoint, or give this stream another name and "
                "another place for its results"
            )

    def settle(self, definition: StreamDefinition, fields: Mapping[str, pa.Schema], cluster_id: str) -> None:
        """Record the definition, fields and cluster of the stream. Raises OperatorError."""
        held = {name: base64.b64encode(schema.serialize()).decode() for name, schema in fields.items()}
        text = json.dumps({"definition": _canonical(definition), "fields": held, "cluster": cluster_id}, indent=1)
        try:
            write_durably(self.path / "stream.json", text)
        except OSError as error:
            raise OperatorError(f"the stream's directory {self.path} can't be written: {os_reason(error)}") from error
        self.fields.update(fields)
        self.cluster_id = cluster_id

    def require_cluster(self, definition: StreamDefinition, cluster_id: str) -> None:
        """Raise OperatorError if the stream was started on another cluster than that of the checkpoint."""
        if self.cluster_id and cluster_id and self.cluster_id != cluster_id:
            raise LoadRefusedError(
                f"the stream {definition.name!r} was started on cluster {self.cluster_id}, but --bootstrap-server "
                f"names cluster {cluster_id}: name a server of cluster {self.cluster_id}, or start a new stream on "
                f"{cluster_id} with another name and another place for the results"
            )


@contextmanager
def held_state(path: Path, definition: StreamDefinition) -> Iterator[StreamState]:
    """Lock the directory of a stream, creating it if needed. Raises OperatorError when another process has locked it,
    or it belongs to another definition."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OperatorError(f"the stream's directory {path} can't be used: {os_reason(error)}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OperatorError(
                f"the stream {definition.name!r} runs in another process, which has locked {path}: stop that one first"
            ) from error
        except OSError as error:  # of file systems that have no locks
            raise OperatorError(f"the stream's directory {path} can't be locked: {os_reason(error)}") from error
        settled = _settled(path, definition)
        yield StreamState(path.absolute(), _owner(path), *settled)
    finally:
        os.close(descriptor)


def _settled(path: Path, definition: StreamDefinition) -> tuple[dict[str, pa.Schema], str]:
    """The fields of the stream's sources and the id of its cluster; empty before the first batch, when the definition
    may still change."""
    if _newest(path / "spark" / "offsets") < 0:
        return {}, ""
    try:
        held = json.loads((path / "stream.json").read_text())
        before = held["definition"]
        fields = {name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(one))) for name, one in held["fields"].items()}
    except FileNotFoundError:
        raise LoadRefusedError(
            f"{path} has a checkpoint but no stream.json, which identifies its stream; restore that file, or name "
            "another directory with --checkpoint"
        ) from None
    except (OSError, *DAMAGED_JSON) as error:
        raise OperatorError(f"{path / 'stream.json'} can't be read: {os_reason(error)}") from error
    changed = _difference(before, _canonical(definition))
    if changed:
        raise LoadRefusedError(
            f"{path} is the state of another definition, which differs in {changed}: revert that change, or start a "
            "new stream with another name and another place for the results"
        )
    return fields, str(held.get("cluster", ""))


def _owner(path: Path) -> int:
    """The number of a directory, created if it is missing."""
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
    """The definition as stored in JSON, without the keys that may change."""

    def kept(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: kept(one) for name, one in value.items() if name not in _CHANGEABLE}
        return [kept(one) for one in value] if isinstance(value, list | tuple) else value

    found: dict[str, Any] = json.loads(json.dumps(kept(asdict(definition)), default=lambda path: path.name))
    return found


def _difference(before: Any, now: Any, where: str = "") -> str:
    """The first key that differs, as the file names it."""
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
