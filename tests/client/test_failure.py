"""Sentences of what brokers refuse."""

from __future__ import annotations

from ottla.client.wire.failure import response_error
from ottla.common.errors import ErrorCode


def test_a_refusal_that_a_setting_mends_names_it() -> None:
    error = response_error(ErrorCode.SECURITY_DISABLED, "ACLs", "No Authorizer is configured.")
    assert error.code is ErrorCode.SECURITY_DISABLED
    assert error.message == "ACLs: No Authorizer is configured; set authorizer.class.name on the brokers"


def test_a_code_that_nobody_knows_is_told_by_its_number() -> None:
    assert response_error(9999, "topic 't'").message == "topic 't': error 9999"
