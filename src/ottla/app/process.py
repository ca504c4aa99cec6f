"""Process around one `Broker`: sockets, signals, the ready file, and the order of startup and shutdown.

Startup: listeners are bound first, so that a port in use is reported immediately and port 0 becomes a real port that
can be advertised; early clients wait in the kernel's backlog. The broker loads its data. Only then are connections
accepted and the ready file is written. In a cluster the controller listener accepts as soon as the metadata log is
open, since other voters need this node's vote; clients wait until the broker has joined.

Shutdown: move leaderships away (unless the whole cluster stops), stop accepting, reject new requests, complete parked
requests, write the clean-shutdown marker, then close the connections. A violated invariant ends the process without the
marker.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ottla import __version__, build_revision, full_version
from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.ending import stopping_signals
from ottla.app.loop_lag import LoopLag
from ottla.app.pool import ThreadPool
from ottla.app.process_metrics import python_version, register_process_metrics
from ottla.app.service_manager import notify_service_manager
from ottla.app.tls import tls_of_listeners
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_zookeeper import ZOOKEEPER_CONNECT
from ottla.common.config.ip_overrides import parse_ip_overrides
from ottla.common.errors import InvariantError, OperatorError
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.common.platform.endpoint import Endpoint, peer_host
from ottla.common.platform.files import read_file
from ottla.common.platform.peer import Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.net import congestion
from ottla.net.connection_set import ConnectionLimits, ConnectionSet
from ottla.net.listener import DEFAULT_BACKLOG, Listener, bind_socket
from ottla.net.wire import Wire
from ottla.record.walk import IMPLEMENTATION
from ottla.server.broker import Broker
from ottla.storage.compaction.worker import Worker
from ottla.storage.directory.log_manager import DEFAULT_OPEN_FILES

if TYPE_CHECKING:
    from ottla.app.console_process import ConsoleProcess
    from ottla.app.sasl import SaslOfListeners
    from ottla.client.zookeeper.zookeeper_session import KazooSession
    from ottla.common.kafka.delegation_token import DelegationToken
    from ottla.common.kafka.ids import Uuid
    from ottla.net.metrics_endpoint import MetricsEndpoint
    from ottla.net.tls import TlsHandshakeLimiter
    from ottla.security.listener_tls import ListenerTls
    from ottla.security.sasl.credentials import ScramCredential, ScramMechanism

logger = logging.getLogger(__name__)

EXIT_BROKEN = 1
EXIT_INTERRUPTED = 130
RESERVED_DESCRIPTORS = 64
"""Descriptors reserved for the loop, checkpoints that are being written, and the metadata log."""
OUTGOING_SHARE = 8
"""One in so many descriptors of a cluster node is reserved for its connections to other nodes."""
CONTROLLER_SHARE = 4
"""One in so many incoming connections may be to the controller."""
LEAST_CONNECTIONS = 8
"""Minimum per listener, however low the limit: a node needs some connections."""
CLOSE_TIMEOUT_S = 5.0
"""Time for clients to read pending responses at shutdown."""
WAITERS = 4
"""Threads that may wait for other services than the disk, such as a KDC."""


class Bound(NamedTuple):
    """A listening socket and its endpoint with the real port."""

    listening: socket.socket
    endpoint: Endpoint
    pacing: bytes | None = None
    """Congestion control for remote connections, if the socket starts them without it."""


class DescriptorBudget(NamedTuple):
    """Division of the open files limit, so that no part of a node can starve another one."""

    files: int
    """Files of segments and indexes."""
    clients: int
    """Connections to the listeners of the broker."""
    controllers: int
    """Connections to the listeners of the controller."""

    @classmethod
    def of(cls, config: BrokerConfig, limit: int) -> DescriptorBudget:
        """`limit` is the number of files that this process may have open."""
        files = min(DEFAULT_OPEN_FILES, limit // 4)
        outgoing = limit // OUTGOING_SHARE if config.clustered or config.on_zookeeper else 0
        incoming = limit - files - outgoing - RESERVED_DESCRIPTORS
        controllers = 0
        if config.clustered and config.is_controller:
            controllers = incoming // CONTROLLER_SHARE if config.is_broker else incoming
        return cls(files, max(incoming - controllers, LEAST_CONNECTIONS), max(controllers, LEAST_CONNECTIONS))


class BrokerProcess:
    """One broker in this process, from bind to exit code."""

    def __init__(
        self,
        config: BrokerConfig,
        loop_name: str,
        ready_file: str | None,
        metrics_port: int | None,
        descriptor_limit: int,
        stop_pipe: int | None = None,
        metrics_token: str | None = None,
        metrics_names: str = "strimzi",
        console: ConsoleProcess | None = None,
    ) -> None:
        """`ready_file` is absolute; `descriptor_limit` is the open files limit of this process.

        `stop_pipe` is a descriptor; its end of file means that the whole cluster stops (`app.supervisor`), or that
        this broker may stop (`ottla.testing`). `metrics_token` is the token that scrapes must present,
        `metrics_names` one of `ottla.metrics.spellings.SPELLINGS`.
        """
        self._config = config
        self._loop_name = loop_name
        self._ready_file = ready_file
        self._metrics_port = metrics_port
        self._metrics_token = metrics_token
        self._metrics_names = metrics_names
        self._console = console
        self._descriptor_limit = descriptor_limit
        self._stop_pipe = stop_pipe
        self._registry = MetricsRegistry()
        self._tls: Mapping[str, ListenerTls] = {}
        self._disk = RealDisk()
        self._broker: Broker | None = None
        self._sasl: SaslOfListeners | None = None
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._hands_over = False

    async def run(self) -> NoReturn:
        """Start, serve until a signal or a violated invariant, stop, and end the process. Raises OperatorError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        pool = ThreadPool(loop)
        runtime = NodeRuntime(self._disk, SystemClock(), SystemRng(), loop, pool)
        self._tls = tls_of_listeners(self._config, serves_metrics=self._metrics_port is not None)
        self._sasl = self._make_sasl(runtime)
        peers = self._peers(loop)
        bound = self._bind_listeners()
        metrics = self._bind_metrics()
        register_process_metrics(self._registry)
        budget = DescriptorBudget.of(self._config, self._descriptor_limit)
        broker = self._broker = self._make_broker(runtime, pool, peers, budget)
        controllers: ConnectionSet | None = None
        try:
            broker.open([each.endpoint for each in bound])
            if self._config.clustered:
                dispatcher, limits = broker.controller_dispatcher, connection_limits(self._config, budget.controllers)
                controllers = ConnectionSet(
                    loop, dispatcher, limits, pool, MetricsRegistry(), self.halt, time.monotonic
                )
                self._accept(self._of_controller(bound), controllers)
            if self._config.clustered or self._config.on_zookeeper:
                await self._join(broker)
            else:
                await broker.start()
                self._watch_for_the_end()
        except OSError as error:
            raise disk_refusal(error, self._config.metadata_log_dir) from error
        connections = self._of_clients(broker, pool, budget.clients)
        sets = [each for each in (connections, controllers) if each is not None]
        endpoint = None if metrics is None else await self._serve_metrics(metrics, broker, sets, bound)
        gc.freeze()  # loaded data stays alive: exclude it from garbage collection
        listeners = self._accept([each for each in bound if each not in self._of_controller(bound)], connections)
        self._announce(broker, bound, metrics)
        self._measure_lag(loop, broker)
        await self._serve_console(broker, metrics)
        if self._failure is None and self._hands_over:
            await broker.hand_over()
        for listener in listeners:
            listener.close()
        if self._failure is not None:
            _exit_at_once(EXIT_BROKEN)
        connections.quiesce()
        await broker.stop()
        await connections.close(CLOSE_TIMEOUT_S)
        if controllers is not None:
            await controllers.close(CLOSE_TIMEOUT_S)
        if endpoint is not None:
            endpoint.close()
        pool.close()
        logger.info("stopped")
        # Skip the interpreter's cleanup, which would free the objects of fifty thousand partitions for seconds.
        _exit_at_once(0)

    def _make_broker(
        self, runtime: NodeRuntime, pool: ThreadPool, peers: Peers | None, budget: DescriptorBudget
    ) -> Broker:
        loop = asyncio.get_running_loop()
        return Broker(
            self._config,
            runtime,
            self._registry,
            peers=peers,
            on_fatal=_end_of_node,
            hostname=advertised_hostname(self._config),
            max_open_files=budget.files,
            cleaner_worker=lambda: _cleaner_process(loop, pool),
            zookeeper=self._zookeeper_session(loop, pool),
            receives_telemetry=self._receives_telemetry(),
        )

    def _watch_certificates(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._tls:
            return
        from ottla.app.certificates import CertificateWatch  # imported here: most brokers have no certificate

        CertificateWatch(list(self._tls.values()), loop, self._registry, time.time).begin()

    def _bind_listeners(self) -> list[Bound]:
        """All listeners, one of which the console can use if there is one. Raises OperatorError."""
        bound = bind_listeners(self._config, self._config.get_int("socket.listen.backlog.size"))
        if self._console is not None:
            self._console.choose([each.endpoint for each in bound if each not in self._of_controller(bound)])
        return bound

    async def _serve_console(self, broker: Broker, metrics: Bound | None) -> None:
        """Run the console, if there is one, until the broker stops."""
        if self._console is not None:
            plain = [] if metrics is None or metrics.endpoint.listener.encrypts else [metrics.endpoint.address]
            self._console.start(self._console.choose(broker.advertised_listeners).address, plain)
        await self._stop.wait()
        if self._console is not None:
            await asyncio.to_thread(self._console.close)

    def _measure_lag(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        longest = broker.parts.statistics.longest_request
        LoopLag(loop, time.monotonic, time.thread_time, self._registry, longest).begin()

    def _peers(self, loop: asyncio.AbstractEventLoop) -> Peers | None:
        config, sasl = self._config, self._sasl
        if not (config.clustered or config.on_zookeeper):
            return None
        from ottla.net.peer import SocketPeerNetwork  # imported here: a single node needs none and starts faster

        own = [each.listener for each in config.listeners if each.listener_name == config.inter_broker_listener]
        controller = (config.controller_listener, "controller")
        broker = (own[0], "inter.broker") if own else controller
        brokers, controllers = (
            SocketPeerNetwork(
                loop,
                f"broker-{config.node_id}",
                self._tls.get(listener.name),
                None if sasl is None else sasl.login(listener, f"sasl.mechanism.{role}.protocol"),
            )
            for listener, role in (broker, controller if config.clustered or config.migrating_broker else broker)
        )
        return Peers(brokers, controllers)

    def _zookeeper_session(self, loop: asyncio.AbstractEventLoop, pool: ThreadPool) -> KazooSession | None:
        if not (self._config.on_zookeeper or self._config.leads_migration):
            return None
        from ottla.client.zookeeper.zookeeper_access import (
            zookeeper_access,  # imported here: a node with a quorum needs none
        )
        from ottla.client.zookeeper.zookeeper_session import KazooSession

        connect = self._config.get_str(ZOOKEEPER_CONNECT) or ""
        timeout_ms = self._config.get_int("zookeeper.session.timeout.ms")
        access = zookeeper_access(self._config.get, os.environ, read_file)
        return KazooSession(connect, timeout_ms, post=loop.call_soon_threadsafe, pool=pool, access=access)

    def _make_sasl(self, runtime: NodeRuntime) -> SaslOfListeners | None:
        if not any(listener.authenticates for listener in self._config.spoken_listeners):
            return None
        from ottla.app.sasl import SaslOfListeners  # imported here: most brokers do not authenticate

        def find(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
            return None if self._broker is None else self._broker.image.scram_credential(user, mechanism)

        def find_token(token_id: str) -> DelegationToken | None:
            return None if self._broker is None else self._broker.image.delegation_tokens.get(token_id)

        def salt_key() -> Uuid:
            if self._broker is None:
                raise InvariantError("a client connected before the broker exists")
            return self._broker.salt_key

        return SaslOfListeners(
            self._config, runtime, find, find_token, salt_key, lambda: ThreadPool(asyncio.get_running_loop(), WAITERS)
        )

    async def _join(self, broker: Broker) -> None:
        """Start a broker that may wait for other nodes or ZooKeeper; a signal interrupts the wait."""
        self._watch_for_the_end()
        start = asyncio.ensure_future(broker.start())
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not start.done():
            # As safe as a crash: no request was served yet.
            _exit_at_once(EXIT_BROKEN if self._failure is not None else 0)
        await start

    def _watch_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in stopping_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        if self._stop_pipe is not None:
            loop.add_reader(self._stop_pipe, self._on_stop_pipe, self._stop_pipe)

    def _of_clients(self, broker: Broker, pool: ThreadPool, most: int) -> ConnectionSet:
        """The connections of clients, with limits and certificates that follow configuration changes."""
        limits = connection_limits(self._config, most)
        loop = asyncio.get_running_loop()
        connections = ConnectionSet(loop, broker.dispatcher, limits, pool, self._registry, self.halt, time.monotonic)
        connections.rates = broker.parts.quotas.connections
        broker.follow_dispatcher(connections.use_dispatcher)
        broker.follow_config(lambda config: connections.use_limits(connection_limits(config, most)))
        for tls in self._tls.values():
            broker.check_config(tls.check)
            broker.follow_config(tls.follow)
        self._watch_certificates(loop)
        return connections

    def _of_controller(self, bound: list[Bound]) -> list[Bound]:
        names = self._config.controller_listener_names
        return [each for each in bound if each.endpoint.listener_name in names]

    def _accept(self, bound: list[Bound], connections: ConnectionSet) -> list[Listener]:
        listeners = [self._listener(each, connections) for each in bound]
        for listener in listeners:
            listener.start_accepting()
        return listeners

    def halt(self, error: BaseException) -> None:
        """Handle a violated invariant: stop without further writes, since the state in memory is not trustworthy."""
        if self._failure is None:
            self._failure = error
            logger.critical("stopping the broker: inconsistent state: %s", error, exc_info=error)
            self._stop.set()

    def _bind_metrics(self) -> Bound | None:
        if self._metrics_port is None:
            return None
        host = (*self._config.listeners, *self._config.controller_listeners)[0].host
        listening = _bind(host, self._metrics_port, DEFAULT_BACKLOG, "--metrics-port")
        info = self._config.metrics_listener
        address, port = listening.getsockname()[:2]
        return Bound(listening, Endpoint(info.name, info.security_protocol, host if "%" in host else address, port))

    async def _serve_metrics(
        self, metrics: Bound, broker: Broker, sets: Sequence[ConnectionSet], bound: Sequence[Bound]
    ) -> MetricsEndpoint:
        from ottla.app.scraping import ScrapedProcess, collectors  # imported here: most brokers serve no HTTP
        from ottla.metrics.spellings import spelling
        from ottla.net.metrics_endpoint import MetricsEndpoint
        from ottla.server.requests.http_access import HttpAccess

        access = HttpAccess(broker.authorizer, self._metrics_token)
        encrypt = None
        if metrics.endpoint.listener.encrypts:
            from ottla.net.tls import TlsTransport

            tls, room = self._tls[metrics.endpoint.listener_name], self._tls_room(sets[0])
            encrypt = partial(TlsTransport, tls, room, -1)
        listeners = [each.endpoint.listener_name for each in bound]
        endpoint = MetricsEndpoint(
            asyncio.get_running_loop(),
            self._registry,
            lambda: not self._stop.is_set(),
            refusal=access.refusal,
            encrypt=encrypt,
            collectors=collectors(
                ScrapedProcess(self._config, self._registry, broker, sets, listeners, self._stop.is_set)
            ),
            spelling=spelling(self._metrics_names),
        )
        await endpoint.start(metrics.listening)
        return endpoint

    def _receives_telemetry(self) -> bool:
        """Whether metrics of clients are received: scrapes export them, if this installation can decode them."""
        if self._metrics_port is None:
            return False
        from ottla.app.telemetry import can_decode  # imported here, as above

        return can_decode()

    def _listener(self, bound: Bound, connections: ConnectionSet) -> Listener:
        sasl = self._sasl
        authentication = (
            None
            if sasl is None
            else sasl.authentication(bound.endpoint.listener, connections.dispatcher, self._registry)
        )
        return Listener(
            bound.listening,
            bound.endpoint,
            connections,
            make_wire=self._wires(bound.endpoint, connections),
            make_gate=None if authentication is None else authentication.gate,
            pacing=bound.pacing,
            send_buffer_bytes=self._config.get_int("socket.send.buffer.bytes"),
            receive_buffer_bytes=self._config.get_int("socket.receive.buffer.bytes"),
        )

    def _wires(self, endpoint: Endpoint, connections: ConnectionSet) -> Callable[[socket.socket], Wire] | None:
        """A factory of wires for connections to a TLS listener."""
        tls = self._tls.get(endpoint.listener_name)
        if tls is None:
            return None
        from ottla.net.tls import TlsWire  # imported here: most brokers have no TLS listener

        return partial(TlsWire, tls=tls, room=self._tls_room(connections))

    def _tls_room(self, connections: ConnectionSet) -> TlsHandshakeLimiter:
        from ottla.net.tls import TlsHandshakeLimiter

        return TlsHandshakeLimiter(connections.scratch.view, connections.metrics.failed_authentications)

    def _announce(self, broker: Broker, bound: list[Bound], metrics: Bound | None) -> None:
        """Log that the broker is ready, and write the ready file."""
        logger.info(
            "ottla %s is ready: node %d of cluster %s on %s, data in %s, record module %s, %s, Python %s",
            full_version(),
            self._config.node_id,
            broker.cluster_id,
            ", ".join(each.endpoint.address for each in bound),
            ", ".join(self._config.log_dirs),
            IMPLEMENTATION,
            self._loop_name,
            python_version(),
        )
        notify_service_manager("READY=1")
        if self._ready_file is None:
            return
        advertised = broker.advertised_listeners
        controllers = broker.advertised_controllers
        content = {
            "version": __version__,
            "revision": build_revision(),
            "python": python_version(),
            "pid": os.getpid(),
            "node_id": self._config.node_id,
            "cluster_id": broker.cluster_id,
            "bootstrap_servers": advertised[0].address if advertised else None,
            "bootstrap_controllers": controllers[0].address if controllers else None,
            "listeners": {endpoint.listener_name: endpoint.address for endpoint in (*advertised, *controllers)},
            "metrics": None if metrics is None else metrics.endpoint.address,
            "data_dir": self._config.metadata_log_dir,
            "record_module": IMPLEMENTATION,
        }
        import json  # imported here: most brokers write no ready file, and imports delay the start

        try:
            self._disk.write_atomic(self._ready_file, json.dumps(content, indent=2).encode() + b"\n")
        except OSError as error:
            logger.error("writing the ready file %s failed: %s", self._ready_file, error.strerror)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            # A second signal forces the stop. As safe as a crash: the next start recovers the logs.
            logger.warning("second signal: stopping immediately")
            _exit_at_once(EXIT_INTERRUPTED)
        logger.info("%s: stopping", signal.Signals(number).name)
        notify_service_manager("STOPPING=1")
        self._hands_over = True
        self._stop.set()

    def _on_stop_pipe(self, descriptor: int) -> None:
        """Handle the end of the pipe: the process that started this broker stops its cluster or has exited."""
        asyncio.get_running_loop().remove_reader(descriptor)
        logger.info("stopping: the parent process stops or has exited")
        self._stop.set()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, InvariantError):
            self.halt(error)
        else:
            logger.error("%s", context.get("message"), exc_info=error)


def bind_listeners(config: BrokerConfig, backlog: int) -> list[Bound]:
    """Bind all configured listeners. Raises OperatorError, after closing those already bound."""
    bound: list[Bound] = []
    endpoints = [*config.listeners, *(config.controller_listeners if config.clustered else ())]
    try:
        for endpoint in endpoints:
            listening = _bind(endpoint.host, endpoint.port, backlog, "--port or listeners")
            pacing = congestion.begin_unpaced(listening)
            bound.append(Bound(listening, endpoint._replace(port=listening.getsockname()[1]), pacing))
    except OperatorError:
        for each in bound:
            each.listening.close()
        raise
    return bound


def _bind(host: str, port: int, backlog: int, setting: str) -> socket.socket:
    try:
        return bind_socket(host, port, backlog)
    except OSError as error:
        place = f"port {port} on {host or 'all addresses'}"
        if error.errno == errno.EADDRINUSE:
            reason = "is in use by another process, perhaps another broker: stop it or choose another port"
        elif error.errno == errno.EACCES:
            reason = "is privileged: choose a port above 1023"
        else:
            reason = f"can't be opened ({error.strerror or error}): choose an address of this machine"
        raise OperatorError(f"{place} {reason} with {setting}") from error


def advertised_hostname(config: BrokerConfig) -> str:
    """The hostname advertised for a listener on all addresses: that of this machine, if it can be resolved."""
    endpoints = (*config.listeners, *(config.controller_listeners if config.clustered else ()))
    if all(advertised.host for advertised in config.advertise(endpoints, hostname="")):
        return "localhost"
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        logger.warning(
            "the hostname %s can't be resolved, so localhost is advertised: set advertised.listeners",
            name,
        )
        return "localhost"
    return name


def connection_limits(config: BrokerConfig, max_sockets: int) -> ConnectionLimits:
    """Limits of a set of connections from the broker's settings, with at most `max_sockets` sockets."""
    return ConnectionLimits(
        socket_request_max_bytes=config.get_int("socket.request.max.bytes"),
        max_connections=min(config.get_int("max.connections"), max_sockets),
        max_connections_per_ip=config.get_int("max.connections.per.ip"),
        per_ip_overrides=_limits_of_addresses(config.get_str("max.connections.per.ip.overrides") or ""),
        connections_max_idle_ms=config.get_int("connections.max.idle.ms"),
    )


def _limits_of_addresses(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by client address; hostnames are resolved now."""
    limits = {}
    for host, count in parse_ip_overrides(text).items():
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            logger.warning("max.connections.per.ip.overrides contains %s, which can't be resolved: entry ignored", host)
            continue
        for *_, address in found:
            limits[peer_host(str(address[0]))] = count
    return limits


def _cleaner_process(loop: asyncio.AbstractEventLoop, pool: ThreadPool) -> Worker:
    from ottla.app.cleaner_process import CleanerProcess  # imported here: most starts have nothing to clean for a while

    return CleanerProcess(loop, pool)


def _end_of_node(error: BaseException) -> None:
    """End a cluster node that cannot follow the metadata or append records: other nodes take over."""
    if isinstance(error, OperatorError):
        logger.critical("stopping the node: %s", error)
    elif isinstance(error, InvariantError):
        logger.critical("stopping the node: inconsistent state: %s", error)
    else:
        logger.critical("stopping the node: the disk of log.dirs failed: %s; repair it and start the node again", error)
    _exit_at_once(EXIT_BROKEN)


def _exit_at_once(code: int) -> NoReturn:
    """Exit without further cleanup; before a shutdown is complete the clean marker is missing, so the next start
    recovers."""
    logging.shutdown()
    os._exit(code)
