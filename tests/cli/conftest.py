"""Commands in this process, against a broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.testing import Broker

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The broker of a module, with the settings in its CONFIGS; OTTLA_TEST_BOOTSTRAP=host:port replaces it."""
    other = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with Broker(configs=request.module.CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(servers: str) -> Run:
    """Run a command; the result must be 0 unless another code is expected."""

    def run(command: click.Command, *arguments: str, stdin: str | bytes | None = None, exit_code: int = 0) -> Result:
        environment = {"OTTLA_BOOTSTRAP_SERVER": servers}
        result = CliRunner(env=environment).invoke(
            cli, [str(command.name), *arguments], input=stdin, catch_exceptions=False
        )
        assert result.exit_code == exit_code, result.output
        return result

    return run
