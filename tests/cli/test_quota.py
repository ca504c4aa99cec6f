"""`ottla quota` on a real broker."""

from __future__ import annotations

import json

import pytest

from ottla.cli.quota import quota

USER = ("--user", "cli-quota")
OTHERS = {"client-id": None, "user": "cli-quota"}


@pytest.fixture
def servers(ottla_broker) -> str:
    return ottla_broker.bootstrap_servers


def shown(run, *entity: str):
    return json.loads(run(quota, "describe", *entity, "--json").stdout)


def test_the_life_of_a_quota(run):
    text = run(quota, "set", *USER, "--producer-byte-rate", "1e12", "--request-percentage", "12.5").stdout
    assert text == "Set quotas of user cli-quota.\n"
    run(quota, "set", *USER, "--default", "client-id", "--consumer-byte-rate", "2e12")
    limits = {"producer_byte_rate": 1e12, "request_percentage": 12.5}
    assert {"entity": {"user": "cli-quota"}, "limits": limits} in shown(run)
    assert {"entity": OTHERS, "limits": {"consumer_byte_rate": 2e12}} in shown(run, *USER)
    assert [each["entity"] for each in shown(run, "--default", "client-id", *USER)] == [OTHERS]
    lines = run(quota, "describe", *USER).stdout.splitlines()
    assert lines[0].split() == ["USER", "CLIENT-ID", "IP", "LIMIT", "VALUE"]
    assert ["cli-quota", "-", "-", "request_percentage", "12.5"] in [line.split() for line in lines]
    assert ["cli-quota", "(default)", "-", "consumer_byte_rate", "2000000000000"] in [line.split() for line in lines]
    removed = run(quota, "remove", *USER, "--request-percentage").stdout
    assert removed == "Removed request_percentage of user cli-quota.\n"
    assert json.loads(run(quota, "remove", *USER, "--json").stdout)["removed"] == ["producer_byte_rate"]
    run(quota, "remove", *USER, "--default", "client-id")
    assert shown(run, *USER) == []
    assert "Nothing to remove" in run(quota, "remove", *USER).stdout


def test_an_address_has_connections_to_limit(run):
    entity = ("--ip", "10.255.0.1")
    run(quota, "set", *entity, "--connection-creation-rate", "1000")
    assert shown(run, *entity)[0]["limits"] == {"connection_creation_rate": 1000}
    run(quota, "remove", *entity)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("set", "--producer-byte-rate", "5"), "no quota entity"),
        (("set", *USER), "nothing to set"),
        (("remove",), "no quota entity"),
        (("set", *USER, "--default", "user", "--producer-byte-rate", "5"), "exclude each other"),
    ],
)
def test_incomplete_commands_are_usage_errors(run, arguments, expected):
    assert expected in run(quota, *arguments, exit_code=2).output


def test_controller_rejection_message_is_printed(run):
    refused = run(quota, "set", *USER, "--producer-byte-rate", "-1", exit_code=1)
    assert "Quota producer_byte_rate must be greater than 0" in refused.output
    mixed = run(quota, "set", *USER, "--ip", "10.0.0.1", "--producer-byte-rate", "5", exit_code=1)
    assert "IP entity should not be combined" in mixed.output
