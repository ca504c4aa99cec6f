"""Messages for broker errors."""

from __future__ import annotations

from ottla.client.wire.failure import response_error
from ottla.common.errors import ErrorCode


def test_error_names_the_setting_that_fixes_it() -> None:
    error = response_error(ErrorCode.SECURITY_DISABLED, "ACLs", "No Authorizer is configured.")
    assert error.code is ErrorCode.SECURITY_DISABLED
    assert error.message == "ACLs: No Authorizer is configured; set authorizer.class.name on the brokers"


def test_unknown_error_code_is_printed_as_number() -> None:
    assert response_error(9999, "topic 't'").message == "topic 't': error 9999"
