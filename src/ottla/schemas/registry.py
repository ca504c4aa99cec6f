"""Client of a schema registry, by the REST API that Confluent's made common.

The schema of an id never changes, so schemas are cached, and sent to Spark's workers with the decoder.

**Invariant:** only the registry's own error that it does not know an id makes a value bad. A registry that is
unreachable, or fails, ends the load: no good record becomes a dead letter because of it. A bare 404 counts as such an
error only if the server is known to be a registry: under a wrong URL every path is missing.

The client is ours: that of confluent-kafka brings thirteen packages (httpx, authlib, cryptography, ...) for two GET
requests. Not supported: registering schemas, TLS client certificates.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from ottla.common.errors import OperatorError
from ottla.schemas.ids import SchemaId

TIMEOUT_S = 10.0
ATTEMPTS = 3
INTERACTIVE_TIMEOUT_S = 3.0
OUTAGE_S = 15.0
"""Time after an outage in which an interactive client sends no request."""
PAUSE_S = 0.5
MAX_RESPONSE_BYTES = 16 << 20
READ_BYTES = 1 << 20
MAX_REFERENCES = 200
"""Maximum number of schemas that one schema may refer to, directly or not."""
MAX_UNKNOWN_IDS = 100_000
"""Maximum number of cached unknown ids; hostile records could bring ever new ones."""
MAX_ID = (1 << 31) - 1
"""Registries accept no larger ids, and some answer them with a bad request instead of an unknown schema."""
UNKNOWN_CODES = frozenset({40401, 40402, 40403})
"""The API's error codes for an unknown subject, version and schema."""
_PLAIN = re.compile(r"[!-~]+")
"""Characters allowed unescaped in a URL; others are written with `%`."""
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchemaError(ValueError):
    """The registry answered that it has no schema of that id; only then is a value bad."""


class RegistryUnreachable(OperatorError):
    """The registry does not answer, or answers with an error; `reason` is the message without a remedy."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; nothing was loaded, run it again when the registry is back")
        self.reason = reason


class _NotFoundError(Exception):
    """The status 404; `is_unknown`: the API's error code means that something is unknown."""

    def __init__(self, *, is_unknown: bool) -> None:
        super().__init__()
        self.is_unknown = is_unknown


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one imports; `name` is its name in the import."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """`kind`: AVRO, PROTOBUF or JSON. `text`: for Protobuf the file descriptor in base64."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(slots=True)
class SchemaRegistry:
    """Schemas of one registry; picklable, including its cache."""

    url: str
    """Root URL of the API; `user:password@` before the host is sent as basic authentication."""
    authorities: str | None = None
    """PEM certificates of the trusted authorities for https; None: those of the system."""
    is_interactive: bool = False
    """For users that wait, in a process that stays: one attempt with a short timeout, no request for OUTAGE_S after an
    outage, and an unknown id is requested again, since it may be registered by then."""
    _known: dict[str, RegisteredSchema] = field(default_factory=dict, repr=False)
    _unknown: set[str] = field(default_factory=set, repr=False)
    _is_confirmed: bool = field(default=False, repr=False)
    """True after an answer that only registries give."""
    _outage: tuple[float, str] | None = field(default=None, repr=False)
    """The end of OUTAGE_S on the monotonic clock, and the reason of the outage."""

    def __post_init__(self) -> None:
        """Raises OperatorError for an invalid URL or invalid certificates."""
        try:
            parts = urlsplit(self.url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable or not _PLAIN.fullmatch(self.url):
            raise OperatorError(
                f"--schema-registry takes the URL of a schema registry such as http://registry:8081, not {self.shown!r}"
            )
        self._tls()

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        return re.sub(r"//.*@", "//", self.url)

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """The schema of that id. Raises UnknownSchemaError, and OperatorError when the registry is unreachable."""
        kind = "ids" if isinstance(schema_id, int) else "guids"
        if isinstance(schema_id, int) and schema_id > MAX_ID:
            raise UnknownSchemaError(f"schema id {schema_id} is above the maximum {MAX_ID}")
        return self._find(f"schemas/{kind}/{schema_id}", f"schema {schema_id}")

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject, None without one. Raises OperatorError."""
        try:
            return self._find(f"subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject!r}")
        except UnknownSchemaError:
            return None

    def references(self, schema: RegisteredSchema) -> Iterator[tuple[Reference, RegisteredSchema]]:
        """All direct and indirect references of a schema, each once and after its own ones. Raises as `schema` does."""
        found: dict[tuple[str, int], tuple[Reference, RegisteredSchema]] = {}
        entered: set[tuple[str, int]] = set()
        waiting = [(reference, False) for reference in reversed(schema.references)]
        while waiting:
            reference, is_ready = waiting.pop()
            key = (reference.subject, reference.version)
            where = f"subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
            if is_ready:
                found[key] = (reference, self._find(where, f"{reference.subject!r}"))
            elif key not in entered:
                entered.add(key)
                if len(entered) > MAX_REFERENCES:
                    raise UnknownSchemaError(f"the schema refers to more than {MAX_REFERENCES} others")
                inner = self._find(where, f"{reference.subject!r} version {reference.version}")
                waiting += [(reference, True), *((one, False) for one in reversed(inner.references))]
        yield from found.values()

    def _find(self, path: str, what: str) -> RegisteredSchema:
        if path in self._known:
            return self._known[path]
        answer = None if path in self._unknown else self._get(path)
        if answer is None:
            if not self.is_interactive and len(self._unknown) < MAX_UNKNOWN_IDS:
                self._unknown.add(path)
            raise UnknownSchemaError(f"the schema registry at {self.shown} does not know {what}")
        try:
            found = RegisteredSchema(
                str(answer.get("schemaType") or "AVRO"),
                str(answer["schema"]),
                tuple(
                    Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
                    for one in answer.get("references") or ()
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OperatorError(
                f"the answer of {self.shown} for {what} is not that of a schema registry; check --schema-registry"
            ) from error
        if not path.endswith("latest"):
            self._known[path] = found
        return found

    def _get(self, path: str) -> Any:
        """The JSON of an answer, None if the registry has no such resource. Raises OperatorError."""
        try:
            return self._ask(path)
        except _NotFoundError as error:
            if error.is_unknown or self._is_registry():
                return None
        raise OperatorError(
            f"the server at {self.shown} is not a schema registry: it has no {path}; --schema-registry takes the root "
            "of the API, which may have a path, as in http://registry:8080/apis/ccompat/v7"
        )

    def _is_registry(self) -> bool:
        """Checked after a bare 404, which registries without GUIDs and all other servers send alike."""
        if not self._is_confirmed:
            with suppress(_NotFoundError):
                self._is_confirmed = isinstance(self._ask("schemas/types"), list)
        return self._is_confirmed

    def _ask(self, path: str) -> Any:
        """The JSON of an answer. Raises _NotFoundError, OperatorError."""
        if self._outage is not None and time.monotonic() < self._outage[0]:
            raise RegistryUnreachable(self._outage[1])
        request = self._request(path)
        attempts, timeout_s = (1, INTERACTIVE_TIMEOUT_S) if self.is_interactive else (ATTEMPTS, TIMEOUT_S)
        for attempt in range(attempts):
            if attempt:
                time.sleep(PAUSE_S * attempt)
            try:
                opener = urllib.request.build_opener(_Redirects, urllib.request.HTTPSHandler(context=self._tls()))
                with opener.open(request, timeout=timeout_s) as response:
                    body = _read_body(response, timeout_s)
                if len(body) > MAX_RESPONSE_BYTES:
                    raise OperatorError(f"the schema registry at {self.shown} answered with too many bytes")
                return json.loads(body)
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    raise _NotFoundError(is_unknown=_is_unknown_error(error)) from None
                reason = f"it answers with status {error.code}"
                if error.code in (401, 403):
                    reason += "; user and password go into the URL, as in https://user:password@host"
                if error.code < 500:
                    break
            except OSError as error:  # URLError and timeouts are such
                reason = str(getattr(error, "reason", error))
                if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                    reason += "; --schema-registry-ca FILE names the certificate of its authority"
                    break
            except (ValueError, RecursionError, http.client.HTTPException) as error:
                raise OperatorError(f"the server at {self.shown} is not a schema registry: {error}") from error
        failure = f"the schema registry at {self.shown} can't be reached: {reason}"
        if self.is_interactive:
            self._outage = (time.monotonic() + OUTAGE_S, failure)
        raise RegistryUnreachable(failure)

    def _tls(self) -> ssl.SSLContext | None:
        """None: the system's defaults."""
        if self.authorities is None:
            return None
        try:
            return ssl.create_default_context(cadata=self.authorities)
        except (OSError, ValueError) as error:  # SSLError is one of the former
            raise OperatorError(f"--schema-registry-ca takes a file of certificates in PEM: {error}") from error

    def _request(self, path: str) -> urllib.request.Request:
        parts = urlsplit(self.url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/{path}")
        url = urlunsplit(bare._replace(query=urlencode({"format": "serialized"})))
        request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
        if parts.username is not None:
            userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            login = "Basic " + base64.b64encode(userinfo).decode()
            request.add_unredirected_header("Authorization", login)  # never sent to the host of a redirect
        return request


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read_body(response: http.client.HTTPResponse | urllib.error.HTTPError, timeout_s: float) -> bytes:
    """At most MAX_RESPONSE_BYTES + 1 bytes. Raises TimeoutError for a body that arrives too slowly."""
    deadline = time.monotonic() + timeout_s
    body = bytearray()
    while len(body) <= MAX_RESPONSE_BYTES and (piece := response.read1(READ_BYTES)):
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError(f"its answer did not end within {timeout_s:.0f} seconds")
    return bytes(body)


def _is_unknown_error(error: urllib.error.HTTPError) -> bool:
    with suppress(OSError, ValueError, RecursionError, http.client.HTTPException):
        document = json.loads(_read_body(error, TIMEOUT_S))
        return isinstance(document, dict) and document.get("error_code") in UNKNOWN_CODES
    return False


def value_subject(topic: str) -> str:
    """The subject of a topic's values by TopicNameStrategy, the default of all serializers."""
    return f"{topic}-value"
