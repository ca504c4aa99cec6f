"""`ottla start`: from the command line and a config file to a `BrokerProcess` on an event loop.

Operator mistakes raise OperatorError before anything is served: one message, exit code 2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.garbage import collect_garbage_rarely
from ottla.app.local_cluster import (
    check_base_settings,
    plan_cluster,
    refuse_busy_ports,
    refuse_directory_of_plan,
    write_plan,
)
from ottla.app.logging import configure_logging, write_audit_log
from ottla.app.process import EXIT_INTERRUPTED, BrokerProcess
from ottla.app.settings import cluster_directory, read_settings
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.ignored_settings import read_ignored
from ottla.common.config.properties import load_properties
from ottla.common.errors import OperatorError
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.common.platform.files import prepare_ready_file, read_file
from ottla.common.runbooks import LOCKED_OUT_BY_A_SETTING
from ottla.storage.files.names import LOCK_FILE

if TYPE_CHECKING:
    from ottla.app.console_process import ConsoleProcess

logger = logging.getLogger(__name__)

LEAST_DESCRIPTORS = 64
"""Descriptors for loop, threads and files of a new node, and a few clients."""
MAX_DESCRIPTORS = 1 << 20
MIN_TOKEN_BYTES = 16
"""Least length of a token that is hard to guess."""
MAX_TOKEN_BYTES = 4096


class StartOptions(NamedTuple):
    """Command line of `ottla start`."""

    config: str | None
    settings: Mapping[str, str]
    data_dir: str | None
    port: int | None
    ready_file: str | None
    metrics_port: int | None
    log_level: str | None
    log_format: str
    brokers: int | None = None
    replace_node: tuple[int, ...] = ()
    stop_with_pipe: int | None = None
    audit_log: str | None = None
    metrics_token_file: str | None = None
    metrics_names: str = "strimzi"
    console_port: int | None = None
    console_config: str | None = None
    console_masks: str | None = None
    console_tables: str | None = None


def run(options: StartOptions) -> int:
    """Run until a signal; returns the exit code. Raises OperatorError."""
    collect_garbage_rarely()
    configure_logging(options.log_level or "info", options.log_format)
    if options.audit_log is not None:
        write_audit_log(options.audit_log, options.log_format)
    if options.brokers is not None:
        return run_cluster(options, options.brokers)
    if options.replace_node:
        raise OperatorError("--replace-node requires --brokers")
    return run_broker(options)


def run_cluster(options: StartOptions, count: int) -> int:
    """Run several brokers, each in its own process."""
    from ottla.app.format import format_cluster
    from ottla.app.supervisor import Supervisor, write_properties

    if options.metrics_port not in (None, 0):
        raise OperatorError(
            "--metrics-port is a single port, but --brokers starts several brokers: use 0 for free ports"
        )
    read_token(options)
    base = load_properties(options.config) if options.config is not None else {}
    base.update(options.settings)
    check_base_settings(base)
    data_dir = cluster_directory(base, options.data_dir)
    disk, rng = RealDisk(), SystemRng()
    try:
        disk.makedirs(data_dir)
        lock = disk.lock(os.path.join(data_dir, LOCK_FILE))
        plan = plan_cluster(disk, rng, data_dir, count, options.port, check=refuse_busy_ports)
        formatted = format_cluster(disk, SystemClock(), rng, plan, options.replace_node)
        write_properties(formatted, base)
        if not plan.formatted or plan.added:
            write_plan(disk, formatted)  # last: it marks all directories as formatted
    except BlockingIOError as error:
        raise OperatorError(
            f"the data directory {data_dir} is in use by a running cluster or another broker: stop it, or "
            "choose another directory with --data-dir"
        ) from error
    except OSError as error:
        raise disk_refusal(error, data_dir) from error
    arguments = ["--log-level", options.log_level or "warning", "--log-format", options.log_format]
    if options.audit_log is not None:
        arguments += ["--audit-log", os.path.abspath(options.audit_log)]
    if options.metrics_port is not None:
        arguments += ["--metrics-port", "0", "--metrics-names", options.metrics_names]
    if options.metrics_token_file is not None:
        arguments += ["--metrics-token-file", os.path.abspath(options.metrics_token_file)]
    ready_file = prepare_ready_file(options.ready_file)
    supervisor = Supervisor(formatted, arguments, ready_file, options.stop_with_pipe, console_process(options))
    try:
        with _interrupts_heard():
            return asyncio.run(supervisor.run())
    except KeyboardInterrupt:  # before the supervisor installs its handler
        return EXIT_INTERRUPTED
    finally:
        lock.release()


def run_broker(options: StartOptions) -> int:
    """Run one broker in this process."""
    settings = read_settings(options.config, options.settings, options.data_dir, options.port)
    config, warnings = BrokerConfig.parse(settings)
    for warning in warnings:
        logger.warning("%s", warning)
    config = without_ignored(config)
    try:
        for path in config.log_dirs:
            refuse_directory_of_plan(RealDisk(), path)
    except OSError as error:
        raise disk_refusal(error, config.metadata_log_dir) from error
    ready_file = prepare_ready_file(options.ready_file)
    descriptor_limit = raise_descriptor_limit()
    if descriptor_limit < LEAST_DESCRIPTORS:
        raise OperatorError(
            f"the limit of open files is {descriptor_limit}, but a broker needs at least {LEAST_DESCRIPTORS}, "
            "and one more per connection: raise the hard limit with ulimit -n or systemd's LimitNOFILE"
        )
    loop_factory, loop_name = choose_loop()
    process = BrokerProcess(
        config,
        loop_name,
        ready_file,
        options.metrics_port,
        descriptor_limit,
        options.stop_with_pipe,
        metrics_token=read_token(options),
        metrics_names=options.metrics_names,
        console=console_process(options),
    )
    try:
        with _interrupts_heard(), asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(process.run())
    except KeyboardInterrupt:  # before the broker installs its handler
        return EXIT_INTERRUPTED


def console_process(options: StartOptions) -> ConsoleProcess | None:
    """The console to run beside the broker, if one is asked for. Raises OperatorError."""
    if options.console_port is None:
        for option in ("console_config", "console_masks", "console_tables"):
            if getattr(options, option) is not None:
                raise OperatorError(f"--{option.replace('_', '-')} requires --console-port")
        return None
    from ottla.app.console_process import ConsoleProcess  # imported here: most brokers have no console

    return ConsoleProcess(
        options.console_port,
        options.console_config,
        options.console_masks,
        options.console_tables,
        options.metrics_token_file,
    )


def without_ignored(config: BrokerConfig) -> BrokerConfig:
    """The config without the dynamic settings that `ottla config recover` excluded. Raises OperatorError."""
    ignored = read_ignored((config.metadata_log_dir, *config.log_dirs))
    if not ignored:
        return config
    logger.warning(
        "RECOVERY: ignoring the dynamic settings %s: correct the stored values, then run "
        "`ottla config recover --end` and restart. See %s.",
        ", ".join(sorted(ignored)),
        LOCKED_OUT_BY_A_SETTING,
    )
    return config.ignoring(ignored)


@contextlib.contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C inside the block, where the loop cancels its tasks."""
    plain = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if plain:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if plain:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def choose_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """uvloop if it is installed, otherwise asyncio's loop; with its name."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit: sockets and segments need descriptors.

    Returns the limit in force.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY:
        return MAX_DESCRIPTORS
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logger.info("raising the open files limit failed, it stays at %d: %s", soft, error)
        return soft
    return wanted


def read_token(options: StartOptions) -> str | None:
    """The content of `--metrics-token-file` without surrounding white space. Raises OperatorError."""
    path = options.metrics_token_file
    if path is None:
        return None
    if options.metrics_port is None:
        raise OperatorError("--metrics-token-file requires --metrics-port")
    try:
        data = read_file(path, 2 * MAX_TOKEN_BYTES).strip()
    except OSError as error:
        raise OperatorError(
            f"{path} can't be read: {error.strerror}: choose another file with --metrics-token-file"
        ) from error
    token = data.decode("latin-1")
    if not MIN_TOKEN_BYTES <= len(data) <= MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable()):
        raise OperatorError(
            f"{path} of --metrics-token-file must contain {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} printable characters: "
            f"create it with `openssl rand -hex 32 > {path}`"
        )
    return token
