"""Broker settings of SASL; each may be set for one listener, or one mechanism of it.

As in KIP-12, KIP-85, KIP-103, KIP-368, KIP-768 and KIP-1139.

They cannot be changed while the broker runs.
"""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, Range

KIBIBYTE = 1024


SASL_CONFIGS = [
    ConfigKey(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("GSSAPI",),
        "SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, and GSSAPI "
        "(Kerberos), which requires the extra gssapi.",
    ),
    ConfigKey(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        "Login module for one mechanism of one listener, as listener.name.<name>.plain.sasl.jaas.config: users as "
        'user_<name>="<password>", and username and password of this node. OAUTHBEARER: ssl.truststore.location '
        "and related options set the certificates trusted for the issuer, as in Apache Kafka. GSSAPI requires "
        "useKeyTab=true, keyTab and principal; useTicketCache=true is enough for controller listeners that this node "
        "only connects to.",
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        "GSSAPI",
        "SASL mechanism that this broker uses to authenticate to other brokers.",
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol",
        ConfigType.STRING,
        "GSSAPI",
        "SASL mechanism that this node uses to authenticate to controllers.",
    ),
    ConfigKey(
        "sasl.kerberos.service.name",
        ConfigType.STRING,
        None,
        "Service part of this node's Kerberos principal: kafka in kafka/host@REALM. Clients and nodes request "
        "tickets for this service and the advertised host. A value that differs from the principal in the login "
        "module is rejected.",
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules",
        ConfigType.LIST,
        ("DEFAULT",),
        "Rules that map a Kerberos principal to a user name: DEFAULT takes the first component in the default realm, "
        "a RULE: is written as in Apache Kafka. The first rule that matches applies.",
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.window.factor",
        ConfigType.DOUBLE,
        0.8,
        "Fraction of the ticket lifetime after which the node obtains a new ticket from the keytab, or reads it from "
        "the cache.",
        Range(0, 1),
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.jitter",
        ConfigType.DOUBLE,
        0.05,
        "Maximum random addition to sasl.kerberos.ticket.renew.window.factor, so that nodes do not contact the KDC "
        "at the same time.",
        Range(0, 1),
    ),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        ConfigType.LONG,
        60_000,
        "Minimum time between two logins unless the ticket ends sooner, and maximum backoff after a failed login.",
        Range(0, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        512 * KIBIBYTE,
        "Maximum size of a request before authentication, in bytes; a larger one closes the connection.",
        Range(KIBIBYTE, 2**31 - 1),
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "Time after which a client must reauthenticate, or its connection is closed; 0 means never.",
        Range(0, 2**63 - 1),
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "Delay of the response to a failed authentication.",
        Range(0, 2**31 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        ConfigType.STRING,
        None,
        "URL of the JWKS document with the issuer's public keys, as file: or https:.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        3_600_000,
        "Interval at which the public keys are refreshed. A token with an unknown key also triggers a refresh, at "
        "most once a minute.",
        Range(1_000, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "Backoff after a failed read of the public keys; it doubles with each failure.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "Maximum backoff after failed reads of the public keys.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        ConfigType.LIST,
        (),
        "Accepted audiences of a token, which must contain one of them; required for OAUTHBEARER.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        ConfigType.STRING,
        None,
        "Required issuer of a token; required for OAUTHBEARER.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        ConfigType.INT,
        30,
        "Maximum difference between the clocks of the issuer and this node.",
        Range(0, 86_400),
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        ConfigType.STRING,
        None,
        "URL of the token with which this node authenticates: a file: URL, read at each login, or the https: URL of "
        "an issuer, which returns a new token as set by sasl.login.refresh.window.factor and related settings.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        ConfigType.STRING,
        None,
        "Client ID for token requests to the issuer; if not set, clientId of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        ConfigType.PASSWORD,
        None,
        "Client secret for token requests to the issuer; if not set, clientSecret of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope",
        ConfigType.STRING,
        None,
        "Scope of token requests, if the issuer requires one; if not set, scope of the login module.",
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor",
        ConfigType.DOUBLE,
        0.8,
        "Fraction of the token lifetime after which the node requests a new token from the issuer.",
        Range(0.5, 1),
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter",
        ConfigType.DOUBLE,
        0.05,
        "Maximum random addition to sasl.login.refresh.window.factor, so that nodes do not contact the issuer at the "
        "same time.",
        Range(0, 0.25),
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds",
        ConfigType.SHORT,
        60,
        "Minimum time before a token is refreshed. No effect if the token lifetime is shorter than this and "
        "sasl.login.refresh.buffer.seconds together.",
        Range(0, 900),
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds",
        ConfigType.SHORT,
        300,
        "Minimum time between a token refresh and the end of the token.",
        Range(0, 3600),
    ),
    ConfigKey(
        "sasl.login.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "Backoff after a failed token request to the issuer; it doubles with each failure.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "Maximum backoff after failed token requests.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name", ConfigType.STRING, "sub", "Claim of the token that contains the user name."
    ),
]
