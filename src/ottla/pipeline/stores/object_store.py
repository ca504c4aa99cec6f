"""A prefix of an object store, by the library `object_store`: obstore for single objects, delta-rs for Arrow.

The driver reads the settings of S3 from AWS's environment variables (SETTINGS); workers get them with their task. For
other stores (`gs://`, `az://`) both libraries read the environment of each process.

An object exists, and is durable, once its upload has ended. Creating and touching are conditional puts (If-None-Match,
If-Match), so they are as atomic as a hard link. An unfinished upload is not an object; the store keeps its parts
until a lifecycle rule removes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.fs

from ottla.common.errors import OperatorError
from ottla.common.extras import require_packages
from ottla.pipeline.stores.locations import ALIASES
from ottla.pipeline.stores.store import StoredFile, UnknownOutcomeError

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "aws_access_key_id": ("AWS_ACCESS_KEY_ID",),
    "aws_secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "aws_session_token": ("AWS_SESSION_TOKEN",),
    "aws_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "aws_endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
"""S3: setting of the library -> environment variables in order of preference."""

UPLOAD_PART_BYTES = 5 << 20
"""The minimum part size of S3; each open file buffers one part."""
UPLOAD_CONCURRENCY = 4
RETRIES = 3
RETRY_TIMEOUT = timedelta(seconds=30)
TOUCH_ATTEMPTS = 5
"""Maximum number of attempts when others change the same object concurrently."""
_ANSWER = re.compile(r"<Code>(\w+)</Code>.*?<Message>([^<]*)</Message>", re.DOTALL)
_NO_BUCKET = re.compile(r"<Code>(?:NoSuchBucket|ContainerNotFound)</Code>")
"""Error codes that mean that the whole store is missing, not only an object."""
_PART = re.compile(r"(?!\.{1,2}\Z)[0-9A-Za-z._=-]+")
"""A part of a URL that no library interprets as anything else."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """`location` has no slash at its end; `settings` are those of delta-rs and obstore, with secrets in them."""

    location: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.location.rpartition("/")[2]

    @property
    def is_remote(self) -> bool:
        return True

    def child(self, name: str) -> ObjectStore:
        return ObjectStore(f"{self.location}/{name}", self.settings)

    def exists(self) -> bool:
        return True

    def make(self) -> None:
        """Object stores have no directories."""

    def holds(self, name: str) -> bool:
        return self.find(name) is not None or next(self.files(name), None) is not None

    def ancestors(self) -> Iterator[ObjectStore]:
        location = self.location
        while not location.endswith("/"):
            yield ObjectStore(location, self.settings)
            location = location.rpartition("/")[0]

    def entries(self) -> list[str]:
        prefixes, objects = self._list_within()
        return sorted([*prefixes, *objects])

    def directories(self) -> list[str]:
        return sorted(self._list_within()[0])

    def _list_within(self) -> tuple[list[str], list[str]]:
        """The names of prefixes and of objects right within this one."""
        import obstore

        with _errors_converted(self.location):
            found = obstore.list_with_delimiter(self._client())
        paths = found["common_prefixes"], [one["path"] for one in found["objects"]]
        prefixes, objects = ([path.rstrip("/").rpartition("/")[2] for path in some] for some in paths)
        return prefixes, objects

    def files(self, below: str = "") -> Iterator[StoredFile]:
        import obstore

        with _errors_converted(self.location):
            for chunk in obstore.list(self._client(), below or None):
                for found in map(_stored, chunk):
                    if not found.name.startswith("."):
                        yield found

    def find(self, path: str) -> StoredFile | None:
        import obstore

        try:
            with _errors_converted(self.locate(path)):
                return _stored(obstore.head(self._client(), path))
        except FileNotFoundError:
            return None

    def locate(self, path: str) -> str:
        return f"{self.location}/{path}"

    def relative(self, location: str) -> str:
        scheme, colon, rest = location.partition("://")
        return f"{ALIASES.get(scheme, scheme)}{colon}{rest}".removeprefix(f"{self.location}/")

    def read(self, path: str) -> bytes:
        import obstore

        with _errors_converted(self.locate(path)):
            return bytes(obstore.get(self._client(), path).bytes())

    def create(self, path: str, content: bytes) -> str:
        """The object may appear after a lost response, so success is decided by reading it back."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            obstore.put(self._client(), path, content, mode="create")
        except AlreadyExistsError as error:
            if self.read(path) != content:
                raise FileExistsError(f"{self.locate(path)} exists already") from error
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError) as error:  # also without a bucket
            raise OSError(_words(error)) from error
        except BaseError as error:
            try:
                written = self.read(path) == content
            except OSError:
                written = False
            if not written:
                raise UnknownOutcomeError(_words(error)) from error
        return ""

    def replace(self, path: str, content: bytes) -> None:
        import obstore

        try:
            with _errors_converted(self.locate(path)):
                obstore.put(self._client(), path, content)
        except FileNotFoundError as error:
            raise OSError(_words(error.__cause__ or error)) from error

    def touch(self, path: str) -> None:
        """Rewrites the object, but only the version that was read: a concurrent removal is not undone."""
        import obstore
        from obstore.exceptions import PreconditionError

        for _ in range(TOUCH_ATTEMPTS):
            with _errors_converted(self.locate(path)):
                found = obstore.get(self._client(), path)
                condition = {name: found.meta[name] for name in ("e_tag", "version") if found.meta.get(name)}
                try:
                    obstore.put(self._client(), path, found.bytes(), mode=condition)
                except PreconditionError:
                    continue
                return
        raise OSError(
            f"{self.locate(path)} was changed concurrently in each of {TOUCH_ATTEMPTS} attempts to touch it; try again"
        )

    def remove(self, path: str) -> None:
        import obstore

        with suppress(FileNotFoundError), _errors_converted(self.locate(path)):
            obstore.delete(self._client(), path)

    def discard(self, below: str) -> None:
        import obstore

        with suppress(OSError), _errors_converted(self.locate(below)):
            for chunk in obstore.list(self._client(), below):
                obstore.delete(self._client(), [found["path"] for found in chunk])

    def sweep(self, before_ms: int) -> None:
        """Does nothing: only whole objects exist, and the bucket's lifecycle rules remove unfinished uploads."""

    def arrow(self, paths: Sequence[str]) -> tuple[Any, list[str]]:
        from deltalake.fs import DeltaStorageHandler

        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.location, dict(self.settings))), list(paths)

    def open_output(self, path: str) -> Any:
        return pa.PythonFile(_Upload(self._client(), path, self.locate(path)), "w")

    def sync(self, path: str) -> StoredFile:
        found = self.find(path)
        if found is None:
            raise FileNotFoundError(
                f"{self.locate(path)} was removed while it was written: keep other programs and lifecycle rules away "
                "from the table"
            )
        return found

    def _client(self) -> Any:
        return _open_client(self.location, tuple(self.settings.items()))


class _Upload:
    """A writable file that becomes an object when it is closed."""

    def __init__(self, client: Any, path: str, location: str) -> None:
        import obstore

        self._location = location
        self._written = 0
        self.closed = False
        with _errors_converted(location):
            self._writer = obstore.open_writer(
                client, path, buffer_size=UPLOAD_PART_BYTES, max_concurrency=UPLOAD_CONCURRENCY
            )

    def write(self, content: Any) -> int:
        with _errors_converted(self._location):
            self._writer.write(
                memoryview(content).cast("B")
            )  # obstore takes no signed bytes, which buffers of Arrow are
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Parts are uploaded as they fill."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _errors_converted(self._location):
                self._writer.close()


def open_object_store(url: str, settings: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at a URL such as `s3://bucket/path`; `settings` override the environment.

    Raises OperatorError for a URL that names no place, and without the extra.
    """
    require_packages("object stores need", {"obstore": "obstore", "deltalake": "deltalake"}, "ottla[object-stores]")
    scheme, _, rest = url.partition("://")
    scheme, parts = ALIASES.get(scheme, scheme), rest.rstrip("/").split("/")
    if not all(map(_PART.fullmatch, parts)):
        raise OperatorError(
            f"{url!r} is not a location in an object store: use {scheme}://BUCKET/PATH with letters, digits and "
            "- _ . = in its parts"
        )
    found = dict(settings or (settings_from_environment() if scheme == "s3" else {}))
    if found.get("aws_endpoint", "").startswith("http://"):
        found["aws_allow_http"] = "true"
    return ObjectStore(f"{scheme}://{'/'.join(parts)}", found)


def settings_from_environment() -> dict[str, str]:
    """Settings of S3 that are set in the environment."""
    found = {}
    for name, variables in SETTINGS.items():
        value = next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
        if value is not None:
            found[name] = value
    return found


@lru_cache(maxsize=64)
def _open_client(location: str, settings: tuple[tuple[str, str], ...]) -> Any:
    from obstore.store import from_url

    config = dict(settings)
    allow_http = config.pop("aws_allow_http", "") == "true"
    try:
        return from_url(
            location,
            config=config or None,
            client_options={"allow_http": True} if allow_http else None,
            retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
        )
    except Exception as error:  # of any class, for invalid settings in the environment
        raise OSError(f"{location} can't be opened: {_words(error)}") from error


@contextmanager
def _errors_converted(location: str) -> Iterator[None]:
    """Convert errors of obstore to OSError; FileNotFoundError only for a missing object."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise OSError(f"{location}: {_words(error)}") from error
        raise FileNotFoundError(f"{location} does not exist") from error
    except BaseError as error:
        raise OSError(f"{location}: {_words(error)}") from error


def _stored(meta: Mapping[str, Any]) -> StoredFile:
    return StoredFile(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _words(error: BaseException) -> str:
    """The message of an error in one line: the store's response if the error contains one."""
    answer = _ANSWER.search(str(error))
    if answer is not None:
        return f"{answer[2].strip().rstrip('.')} ({answer[1]})"
    return next((line.strip().rstrip(".:") for line in str(error).splitlines() if line.strip()), type(error).__name__)
