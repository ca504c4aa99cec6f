"""`ottla token` on a real broker: created by a user, used by a program, and no leaked secret."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.testing import Broker

PASSWORD, SECRET = "ann's password 51c2", "secret of all nodes 9b1d"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CONFIGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,ASKING://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ASKING:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": SECRET,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(configs=CONFIGS) as running:
        yield running


class Tools:
    """Commands as a user, or without authentication."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._open, self._asking = broker.bootstrap_servers, str(broker.ready["listeners"]["ASKING"])
        self._folder = folder

    def run(
        self, *arguments: str, login: Mapping[str, str] | None = None, exit_code: int = 0, stdin: str | None = None
    ) -> Result:
        options = ["--bootstrap-server", self._asking if login else self._open]
        if login:
            options += ["--command-config", str(self._properties(**login))]
        result = CliRunner().invoke(cli, [*arguments, *options], input=stdin, catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result

    def json(self, *arguments: str, login: Mapping[str, str]) -> Any:
        return json.loads(self.run(*arguments, "--json", login=login).stdout)

    def _properties(self, mechanism: str = "SCRAM-SHA-512", **options: str) -> Path:
        path = self._folder / "client.properties"
        named = " ".join(f'{name}="{value}"' for name, value in options.items())
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={MODULE} required {named};\n"
        )
        return path


@pytest.fixture
def tools(broker: Broker, tmp_path: Path) -> Tools:
    made = Tools(broker, tmp_path)
    made.run("user", "add", "ann", "--password-file", "-", stdin=PASSWORD)
    return made


ANN = {"username": "ann", "password": PASSWORD}


@pytest.mark.promise("S6")
def test_the_life_of_a_token(broker: Broker, tools: Tools) -> None:
    made = tools.json("token", "create", "--renewer", "bob", "--max-lifetime", "2h", login=ANN)
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:ann", "User:ann", ["User:bob"])
    assert made["expiry_ms"] == made["max_ms"] == made["issue_ms"] + 7_200_000
    (listed,) = tools.json("token", "list", login=ANN)
    assert listed == {name: value for name, value in made.items() if name != "hmac"}
    assert tools.json("token", "list", "--owner", "eve", login=ANN) == []
    row = tools.run("token", "list", login=ANN).stdout.splitlines()[1].split()
    assert row[:4] == [made["token_id"], "User:ann", "User:ann", "User:bob"]

    shown = {"username": made["token_id"], "password": made["hmac"], "tokenauth": "true"}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tools.run("topic", "list", login={**shown, "mechanism": mechanism})
    # A token cannot create another token, and is not the password of a user.
    refused = tools.run("token", "create", exit_code=1, login=shown).output
    assert "delegation token request not allowed; authenticate as a user" in refused
    for wrong in (
        {**shown, "password": made["hmac"][::-1]},
        {**shown, "tokenauth": "false"},
        {**ANN, "tokenauth": "true"},
    ):
        assert "rejected the login" in tools.run("topic", "list", exit_code=2, login=wrong).output

    renewed = tools.json("token", "renew", made["token_id"], "--period", "1h", login=ANN)
    assert renewed["expiry_ms"] < made["expiry_ms"]
    output = tools.run("token", "expire", made["token_id"], "--after", "30m", login=ANN).stdout
    assert output.startswith(f"Token {made['token_id']} expires at 2")
    tools.run("token", "expire", made["token_id"], login=ANN)
    assert tools.json("token", "list", login=ANN) == []
    assert "rejected the login" in tools.run("topic", "list", exit_code=2, login=shown).output
    assert "is not visible to this user" in tools.run("token", "renew", made["token_id"], exit_code=1, login=ANN).output
    for secret in (SECRET, PASSWORD, made["hmac"]):
        assert secret not in broker.logs()


def test_anonymous_user_gets_no_token(tools: Tools) -> None:
    assert "delegation token request not allowed" in tools.run("token", "create", exit_code=1).output
    described = tools.run("config", "describe", "broker", "1").output
    assert SECRET not in described


def test_how_a_token_is_shown_to_people(tools: Tools) -> None:
    lines = tools.run("token", "create", login=ANN).stdout.splitlines()
    assert lines[0].endswith("Its HMAC is shown only once:")
    assert len(lines[1]) == 88
