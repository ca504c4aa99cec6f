"""Profiles: precedence of servers and settings, and rejected files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from ottla.app.main import cli
from ottla.cli.command import DEFAULT_BOOTSTRAP_SERVER, Command, connection_options, security
from ottla.common.config.properties import format_properties

HIDDEN = "h1dden"


@click.command(cls=Command)
@connection_options
def show(bootstrap_server: str) -> None:
    click.echo(json.dumps([bootstrap_server, security().portable.get("sasl.jaas.config", "")]))


def jaas(user: str) -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{user}" password="{HIDDEN}";'


def properties(user: str, **others: str) -> str:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(user),
    }
    return format_properties(settings | others)


class Home:
    """A home directory with profiles in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.profiles = directory / ".config" / "ottla"
        self.profiles.mkdir(parents=True)
        self.environment = {"HOME": str(directory), "XDG_CONFIG_HOME": ""}

    def put(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.profiles / f"{name}.properties"
        path.write_text(text)
        path.chmod(mode)
        return path

    def run(self, command: click.Command, *arguments: str, **environment: str) -> Result:
        env = {"OTTLA_BOOTSTRAP_SERVER": "", "OTTLA_COMMAND_CONFIG": "", "OTTLA_PROFILE": ""}
        return CliRunner(env=env | self.environment | environment).invoke(command, arguments)

    def shown(self, *arguments: str, **environment: str) -> tuple[str, str]:
        """Servers and user of a command."""
        result = self.run(show, *arguments, **environment)
        assert result.exit_code == 0, result
        servers, login = json.loads(result.stdout)
        return servers, login.partition('username="')[2].partition('"')[0]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def full(home: Home) -> Home:
    home.put("default", properties("d", **{"bootstrap.servers": "default:1"}))
    home.put("prod", properties("p", **{"bootstrap.servers": "prod:1"}))
    (home.directory / "file").write_text(properties("f", **{"bootstrap.servers": "file:1"}))
    (home.directory / "part").write_text(f"sasl.jaas.config={jaas('part')}\n")
    return home


SERVER, FILE, PROFILE = "OTTLA_BOOTSTRAP_SERVER", "OTTLA_COMMAND_CONFIG", "OTTLA_PROFILE"


@pytest.mark.parametrize(
    ("arguments", "environment", "servers", "user"),
    [
        ("", {}, "default:1", "d"),
        ("--profile prod", {}, "prod:1", "p"),
        ("", {PROFILE: "prod"}, "prod:1", "p"),
        ("--profile prod -b typed:1", {}, "typed:1", "p"),
        ("-b typed:1", {PROFILE: "prod"}, "typed:1", "p"),
        ("--command-config {home}/file", {}, "file:1", "f"),
        ("--command-config {home}/file --profile prod", {}, "file:1", "f"),
        ("--command-config {home}/part --profile prod", {}, "prod:1", "part"),
        ("", {FILE: "{home}/part", PROFILE: "prod"}, "prod:1", "part"),
        # The command line overrides the environment.
        ("--profile prod", {FILE: "{home}/file", SERVER: "env:1"}, "prod:1", "p"),
        ("--command-config {home}/file", {PROFILE: "prod", SERVER: "env:1"}, "file:1", "f"),
        ("--command-config {home}/part", {PROFILE: "prod"}, DEFAULT_BOOTSTRAP_SERVER, ""),
        ("", {PROFILE: "prod", SERVER: "env:1"}, "env:1", "p"),
        ("", {FILE: "{home}/file", SERVER: "env:1"}, "env:1", "f"),
        # The secrets of the default profile are for its own servers.
        ("-b typed:1", {}, "typed:1", ""),
        ("", {SERVER: "env:1"}, "env:1", ""),
    ],
)
def test_properties_follow_precedence(
    full: Home, arguments: str, environment: dict[str, str], servers: str, user: str
) -> None:
    where = {"home": full.directory}
    variables = {name: value.format(**where) for name, value in environment.items()}
    assert full.shown(*arguments.format(**where).split(), **variables) == (servers, user)


def test_without_profiles_a_command_is_as_before(home: Home) -> None:
    assert home.shown() == (DEFAULT_BOOTSTRAP_SERVER, "")
    home.profiles.rmdir()
    assert home.shown() == (DEFAULT_BOOTSTRAP_SERVER, "")


def test_the_place_is_that_of_the_xdg_specification(full: Home, tmp_path: Path) -> None:
    other = tmp_path / "other" / "ottla"
    other.mkdir(parents=True)
    path = other / "default.properties"
    path.write_text("bootstrap.servers=xdg:1\n")
    path.chmod(0o600)
    assert full.shown(XDG_CONFIG_HOME=str(other.parent)) == ("xdg:1", "")
    assert full.shown(XDG_CONFIG_HOME="relative/counts/for/nothing") == ("default:1", "d")


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (properties("d"), 0o640, "sasl.jaas.config in the profile"),
        (properties("d"), 0o604, "is readable by other users"),
        ("ssl.keystore.password=" + HIDDEN, 0o644, "ssl.keystore.password in the profile"),
        ("bootstrap.servers=x:1", 0o622, "is writable by other users"),
        ("bootstrap.servers=x:1", 0o644, ""),
        (properties("d"), 0o400, ""),
    ],
)
@pytest.mark.parametrize("name", ["default", "other"])
def test_a_file_that_is_open_to_others_is_refused(home: Home, text: str, mode: int, words: str, name: str) -> None:
    path = home.put(name, text, mode)
    arguments = [] if name == "default" else ["--profile", name]
    if not words:
        assert home.run(show, *arguments).exit_code == 0
        return
    refused = home.run(cli, "topic", "list", *arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr
    assert f"chmod go-rwx {path}" in refused.stderr
    assert HIDDEN not in refused.output
    assert "Traceback" not in refused.output


def test_a_pipe_is_not_waited_for(home: Home) -> None:
    os.mkfifo(home.profiles / "default.properties")
    refused = home.run(cli, "topic", "list")
    assert refused.exit_code == 2
    assert "default.properties can't be read: " in refused.stderr
    assert "regular file" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_file_of_another_user_is_refused(home: Home) -> None:
    os.chown(home.put("default", "bootstrap.servers=x:1\n"), 12345, 12345)
    refused = home.run(cli, "topic", "list")
    assert refused.exit_code == 2
    assert "belongs to another user" in refused.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prdo", "did you mean prod? profiles: default, prod; create it as {home}/.config/ottla/prdo.properties"),
        ("../prod", "is not a profile name"),
        (".prod", "is not a profile name"),
        ("p/x", "is not a profile name"),
    ],
)
def test_missing_profile_error_lists_existing_profiles(full: Home, name: str, words: str) -> None:
    refused = full.run(cli, "topic", "list", "--profile", name)
    assert refused.exit_code == 2
    assert words.format(home=full.directory) in refused.stderr


def test_malformed_profile_error_contains_no_secret(home: Home) -> None:
    home.put("default", f"sasl.jaas.config={HIDDEN}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    refused = home.run(cli, "topic", "list")
    assert refused.exit_code == 2
    assert "in the profile default" in refused.stderr
    home.put("default", f"sasl.jaas.config={HIDDEN}\\u12\n")
    broken = home.run(cli, "topic", "list")
    assert broken.exit_code == 2
    assert "line 1" in broken.stderr
    assert HIDDEN not in refused.output + broken.output


def test_a_shell_completes_names(full: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in full.environment.items():
        monkeypatch.setenv(name, value)
    (full.profiles / "notes.txt").write_text("")
    found = ShellComplete(cli, {}, "ottla", "_OTTLA_COMPLETE").get_completions(["topic", "list", "--profile"], "p")
    assert [item.value for item in found] == ["prod"]
