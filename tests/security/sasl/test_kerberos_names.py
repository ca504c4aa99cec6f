"""Mapping of principals to user names, by the rules of Apache Kafka."""

from __future__ import annotations

import pytest

from ottla.common.errors import OperatorError
from ottla.security.sasl.kerberos_names import PrincipalRules

REALM = "MY.REALM"
APPLICATIONS = [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"]


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "ann@MY.REALM", "ann"),
        (["DEFAULT"], "kafka/host.example.com@MY.REALM", "kafka"),
        (["DEFAULT"], "kafka/@MY.REALM", "kafka"),
        (APPLICATIONS, "App.service-name/example.com@MY.REALM", "service-name"),
        (APPLICATIONS, "App.service-name@MY.REALM", "service-name"),
        (APPLICATIONS, "user/host@MY.REALM", "user"),
        ([r"RULE:[1:$1@$0](.*@OTHER\.REALM)s/@.*//", "DEFAULT"], "bob@OTHER.REALM", "bob"),
        ([r"RULE:[1:$1@$0](.*@OTHER\.REALM)s/@.*//", "DEFAULT"], "ann@MY.REALM", "ann"),
        (["RULE:[2:$1;$2](^.*;admin$)s/;admin$//"], "ann/admin@MY.REALM", "ann"),
        (["RULE:[2:$2-$1]"], "a/b@MY.REALM", "b-a"),
        (["RULE:[1:u$1]"], "ann@MY.REALM", "uann"),
        (["RULE:[1:$1]/L"], "Ann@MY.REALM", "ann"),
        (["RULE:[1:$1]/U"], "Ann@MY.REALM", "ANN"),
        (["RULE:[1:$1]s/a/b//L"], "Aaa@MY.REALM", "aba"),
        (["RULE:[1:$1]s/a/b/g"], "aaa@MY.REALM", "bbb"),
        (["RULE:[1:$1]s/a/b/"], "aaa@MY.REALM", "baa"),
        (["RULE:[1:$1]s/a/b/gU"], "aaa@MY.REALM", "BBB"),
        (["RULE:[1:$1]s/(a)(x)?/$2$1\\$$10/"], "a@MY.REALM", "a$a0"),
    ],
)
def test_the_first_rule_that_fits_names_the_user(rules: list[str], principal: str, name: str) -> None:
    assert PrincipalRules(rules, REALM).name(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], "ann@OTHER.REALM"),
        (["DEFAULT"], "ann@my.realm"),
        (["DEFAULT"], "ann"),
        (["DEFAULT"], "@MY.REALM"),
        (["DEFAULT"], "ann@"),
        (["DEFAULT"], "a/b/c@MY.REALM"),
        (["DEFAULT"], r"ann\@MY.REALM@OTHER.REALM"),
        (["DEFAULT"], r"ann\/b@MY.REALM"),
        (["DEFAULT"], "ann@MY.REALM\n"),
        (["RULE:[2:$1]"], "ann@MY.REALM"),
        (["RULE:[1:$1](an)"], "ann@MY.REALM"),
        (["RULE:[1:$1@$0]"], "ann@MY.REALM"),
        (["RULE:[2:$1/$2]", "DEFAULT"], "ann/b@MY.REALM"),
        (["RULE:[1:$1]s/.*//g"], "ann@MY.REALM"),
    ],
)
def test_principal_without_a_matching_rule_is_rejected(rules: list[str], principal: str) -> None:
    with pytest.raises(ValueError, match=r"rule|principal"):
        PrincipalRules(rules, REALM).name(principal)


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAULT/L",
        "RULE",
        "RULE:[:$1]",
        "RULE:[1$1]",
        "RULE:[1:$1](",
        "RULE:[1:$1](a(b)c)",
        "RULE:[1:$1](a[)",
        "RULE:[1:$1](a)x",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1]s/a/b",
        "RULE:[1:$1]s/(a/b/",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
        "RULE:[1:$1]s/a/${x}/",
        "RULE:[1:$1]s/a/b\\/",
        "RULE:[1:$1]/LU",
        "RULE:[1:$1]/X",
    ],
)
def test_invalid_rule_is_rejected_at_the_start(rule: str) -> None:
    with pytest.raises(
        OperatorError, match=r"sasl\.kerberos\.principal\.to\.local\.rules has an invalid rule"
    ) as caught:
        PrincipalRules([rule, "DEFAULT"], REALM)
    assert repr(rule) in str(caught.value)


def test_rules_that_reject_every_client_are_rejected() -> None:
    with pytest.raises(OperatorError, match="is empty"):
        PrincipalRules([], REALM)
    with pytest.raises(OperatorError, match="default_realm"):
        PrincipalRules(["RULE:[1:$1]", "DEFAULT"], "")
    assert PrincipalRules(["RULE:[1:$1]"], "").name("ann@ANY") == "ann"
