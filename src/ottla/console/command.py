"""`ottla console`: the web console of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.command import Command, connection_options, run_until_terminated
from ottla.cli.schema_options import registry_options
from ottla.common.errors import OperatorError

PORT = click.IntRange(0, 65535)
_FILE = click.Path(readable=False)


@click.command(
    cls=Command,
    examples=(
        "ottla console                                            # http://127.0.0.1:8080 for 127.0.0.1:9092",
        "ottla console -b kafka-1:9092,kafka-2:9092 --read-only",
        "ottla console -b kafka-1:9094 --command-config sasl.properties   # users sign in",
        "ottla console -b kafka-1:9094 --command-config sasl.properties --masks masks.toml",
        "ottla console --schema-registry http://registry:8081     # decode Avro, Protobuf and JSON by schema id",
        "ottla console --public-url https://ops.example.com/kafka # behind a reverse proxy",
        "ottla console --tables ./lake --metrics-url http://127.0.0.1:9404/metrics",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=PORT, default=8080, show_default=True, help="Port to listen on; 0 for a free one.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate chain of the console, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of the certificate, PEM.")
@click.option("--public-url", metavar="URL", help="Address of the console at a reverse proxy, with its path.")
@click.option("--read-only", is_flag=True, help="Offer no page that changes the cluster.")
@click.option("--audit-log", type=_FILE, metavar="FILE", help="File for the audit log  [default: standard error]")
@click.option("--masks", type=_FILE, metavar="FILE", help="TOML file with masked fields of records by topic.")
@registry_options
@click.option("--tables", metavar="DIR", help="Directory or URL of tables of the pipeline, for their page.")
@click.option(
    "--metrics-url",
    "metrics_urls",
    multiple=True,
    metavar="URL",
    help="Prometheus metrics of a broker, for the metrics of clients; may be repeated.",
)
@click.option("--metrics-token-file", type=_FILE, metavar="FILE", help="File with the bearer token of these metrics.")
@click.option("--ready-file", type=_FILE, metavar="FILE", help="File for the address as JSON, written when ready.")
@click.option("--stop-with-pipe", type=int, hidden=True, help="File descriptor; stop at its end of file.")
@connection_options
def console(
    host: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
    public_url: str | None,
    read_only: bool,
    audit_log: str | None,
    masks: str | None,
    schema_registry: str | None,
    schema_registry_ca: Path | None,
    tables: str | None,
    metrics_urls: tuple[str, ...],
    metrics_token_file: str | None,
    ready_file: str | None,
    stop_with_pipe: int | None,
    bootstrap_server: str,
) -> None:
    """Serve web pages that show and change a cluster.

    Every request to the cluster uses the credentials of the signed-in user, so ACLs and quotas apply. A cluster
    without SASL is served without sign-in, on this machine only.
    """
    try:
        import htpy  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise OperatorError(
            f"ottla console needs the package {error.name}: install it with pip install 'ottla[console]'"
        ) from error
    from ottla.console.serving import ServeOptions, serve

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("give both --tls-cert and --tls-key")
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    options = ServeOptions(
        bootstrap_server,
        host,
        port,
        tls,
        public_url,
        read_only,
        audit_log,
        masks,
        schema_registry,
        schema_registry_ca,
        ready_file,
        tables,
        metrics_urls,
        metrics_token_file,
    )
    run_until_terminated()
    serve(options, stop_with_pipe)
