"""The process of the console: settings, the listener, and the end by a signal or with the broker that started it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple

import uvicorn

from ottla.cli.command import client_properties, notify
from ottla.cli.metrics_token import read_token
from ottla.client.admin.cluster import Cluster
from ottla.client.views.pushed_metrics import MetricsSource, require_url
from ottla.client.wire.connection import parse_bootstrap_servers
from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.files import prepare_ready_file
from ottla.console.application import create_application
from ottla.console.audit import write_audit_log
from ottla.console.client_scrapes import ClientScrapes
from ottla.console.context import Services
from ottla.console.flow_meter import FlowMeter
from ottla.console.mask_policy import SECRET_BYTES, MaskPolicy, read_masks
from ottla.console.openid import OpenIdProvider
from ottla.console.openid_settings import ISSUER
from ottla.console.routes import ROUTES
from ottla.console.sessions import SessionStore
from ottla.console.settings import (
    ConsoleSettings,
    check_exposure,
    check_public_url,
    check_redirect_address,
    read_registry,
    read_transport,
)
from ottla.console.sign_in import SignInThrottle
from ottla.console.tables import TableIndex
from ottla.pipeline.stores.locations import require_directory

CLIENT_ID = "ottla-console"
"""Client id of its own, so that client quotas can limit consoles."""
TIMEOUT_S = 10.0
MAX_REQUESTS = 200
"""Requests at once, with live tails; others get the status 503."""
END_S = 2
"""Seconds for open requests at the end."""
BACKLOG = 128
GC_THRESHOLDS = (50_000, 10, 10)
"""Metadata of 30,000 partitions creates 200,000 objects. By default, collections take half the time to decode it."""


class ServeOptions(NamedTuple):
    """Command line of `ottla console`."""

    bootstrap_servers: str
    host: str
    port: int
    tls: tuple[str, str] | None
    public_url: str | None
    is_read_only: bool
    audit_log: str | None
    masks: str | None
    schema_registry: str | None
    schema_registry_ca: object
    ready_file: str | None
    tables: str | None = None
    metrics_urls: tuple[str, ...] = ()
    metrics_token_file: str | None = None


class _Clock:
    """Wall and monotonic clock of this machine."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class _Rng:
    """The operating system's randomness."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def randrange(self, stop: int) -> int:
        raise NotImplementedError


def read_settings(options: ServeOptions, properties: Mapping[str, str], place: str) -> ConsoleSettings:
    """The settings of the command line and the client properties. Raises OperatorError."""
    parse_bootstrap_servers(options.bootstrap_servers)
    settings = ConsoleSettings(
        options.bootstrap_servers,
        read_transport(properties, place),
        options.host,
        options.port,
        options.tls,
        check_public_url(options.public_url),
        options.is_read_only,
        None if options.tables is None else require_directory(options.tables, "--tables"),
        _metrics(options),
    )
    check_exposure(settings)
    check_redirect_address(settings)
    if settings.transport.openid is not None and importlib.util.find_spec("jwt") is None:
        raise OperatorError(f"{ISSUER} needs the package pyjwt: install it with pip install 'ottla[console]'")
    return settings


def _metrics(options: ServeOptions) -> tuple[MetricsSource, ...]:
    for url in options.metrics_urls:
        require_url(url, "--metrics-url")
    file = options.metrics_token_file
    if file is not None and not options.metrics_urls:
        raise OperatorError("--metrics-token-file requires --metrics-url")
    token = None if file is None else read_token(file, "--metrics-token-file")
    return tuple(MetricsSource(url, token) for url in options.metrics_urls)


def serve(options: ServeOptions, stop_with_pipe: int | None) -> None:
    """Serve until a signal. Raises OperatorError."""
    properties, place = client_properties()
    settings = read_settings(options, properties, place)
    registry = read_registry(options.schema_registry, options.schema_registry_ca, properties, place)
    rng = _Rng()
    masks = MaskPolicy() if options.masks is None else read_masks(options.masks, rng.random_bytes(SECRET_BYTES))
    _check_certificate(options.tls)
    write_audit_log(options.audit_log)
    ready_file = prepare_ready_file(options.ready_file)
    listening = _bind(options.host, options.port)
    settings = settings._replace(port=listening.getsockname()[1])
    clock = _Clock()

    def open_cluster(security: ClientSecurity) -> Cluster:
        return Cluster(settings.bootstrap_servers, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security)

    openid = settings.transport.openid
    services = Services(
        settings,
        SessionStore(clock, rng),
        SignInThrottle(clock),
        clock,
        open_cluster,
        FlowMeter(),
        ClientScrapes(settings.metrics, clock),
        openid=None if openid is None else OpenIdProvider(openid, clock),
        tables=None if settings.tables is None else TableIndex(settings.tables, clock),
        masks=masks,
        registry=registry,
    )
    config = uvicorn.Config(
        create_application(services, ROUTES),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_REQUESTS,
        timeout_graceful_shutdown=END_S,
        ssl_certfile=options.tls[0] if options.tls else None,
        ssl_keyfile=options.tls[1] if options.tls else None,
    )
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    with contextlib.closing(listening):
        asyncio.run(_run(uvicorn.Server(config), listening, settings.address, ready_file, stop_with_pipe))


async def _run(
    server: uvicorn.Server, listening: socket.socket, url: str, ready_file: str | None, stop_with_pipe: int | None
) -> None:
    loop = asyncio.get_running_loop()
    if stop_with_pipe is not None:

        def ended() -> None:
            if not os.read(stop_with_pipe, 1):
                loop.remove_reader(stop_with_pipe)
                server.should_exit = True

        loop.add_reader(stop_with_pipe, ended)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        notify(f"the console is ready at {url}")
        if ready_file is not None:
            _write_ready_file(ready_file, url)
    await serving


def _write_ready_file(path: str, url: str) -> None:
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"url": url, "pid": os.getpid()}, file)
        os.replace(draft, path)
    except OSError as error:
        raise OperatorError(
            f"the ready file {path} can't be written: {error.strerror}: choose another path with --ready-file"
        ) from error


def _check_certificate(tls: tuple[str, str] | None) -> None:
    if tls is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*tls)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
        raise OperatorError(f"the certificate of --tls-cert and --tls-key can't be used: {reason}") from error


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise OperatorError(
            f"the console can't listen on {format_address(host, port)}: {(error.strerror or str(error)).lower()}: "
            "choose another --host or --port"
        ) from error
    return listening
