"""Broker settings of SASL, each also for one listener, or one mechanism of it.

As in KIP-12, KIP-85, KIP-103, KIP-368, KIP-768 and KIP-1139.

Left out: to change them while the broker runs.
"""

from __future__ import annotations

from ottla.common.config.config_def import ConfigKey, ConfigType, Range

KIBIBYTE = 1024


SASL_CONFIGS = [
    ConfigKey(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("GSSAPI",),
        "Mechanisms by which clients may say who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, "
        "GSSAPI (Kerberos), which needs the extra gssapi.",
    ),
    ConfigKey(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        "The login module of one mechanism of one listener, as listener.name.<name>.plain.sasl.jaas.config: users "
        'as user_<name>="<password>", and username and password of this node. That of OAUTHBEARER says by '
        "ssl.truststore.location and its like whom a connection to an issuer trusts, as in Apache Kafka. That of "
        "GSSAPI has useKeyTab=true, keyTab and principal; useTicketCache=true is enough for a listener of controllers "
        "that others open.",
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        "GSSAPI",
        "The mechanism by which this broker says to others who it is.",
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol",
        ConfigType.STRING,
        "GSSAPI",
        "The mechanism by which this node says to controllers who it is.",
    ),
    ConfigKey(
        "sasl.kerberos.service.name",
        ConfigType.STRING,
        None,
        "The service that clients and nodes ask for tickets of, by their setting of this name, with the host that is "
        "advertised: kafka of kafka/host@REALM. Another one than in the principal of the login module is refused.",
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules",
        ConfigType.LIST,
        ("DEFAULT",),
        "How a principal of Kerberos becomes the name of a user: DEFAULT, which takes the first component in the "
        "default realm, or a RULE: as Apache Kafka has them. The first that fits counts.",
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.window.factor",
        ConfigType.DOUBLE,
        0.8,
        "After which part of its life the ticket of this node is taken anew from the keytab, or read from the cache.",
        Range(0, 1),
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.jitter",
        ConfigType.DOUBLE,
        0.05,
        "Up to which further part of it, by chance, so that not all nodes ask the KDC at once.",
        Range(0, 1),
    ),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        ConfigType.LONG,
        60_000,
        "The shortest time between two of them, unless the ticket would end before, and the longest until a KDC that "
        "gave none is asked again.",
        Range(0, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        512 * KIBIBYTE,
        "Largest request of a client before authentication, in bytes; a larger one closes the connection.",
        Range(KIBIBYTE, 2**31 - 1),
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "After this time a client has to authenticate again, or its connection is closed; 0 is never.",
        Range(0, 2**63 - 1),
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "How late a client hears that its authentication failed.",
        Range(0, 2**31 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        ConfigType.STRING,
        None,
        "Where the public keys are that sign tokens: a JWKS document behind file: or https:.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        3_600_000,
        "How often those keys are read anew; also when a token names one that is not there, at most once a minute.",
        Range(1_000, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "How soon they are read again where that failed; then doubled each time.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "The longest of those waits.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        ConfigType.LIST,
        (),
        "For whom a token has to be, one of these; none is refused with OAUTHBEARER.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        ConfigType.STRING,
        None,
        "From whom a token has to be; none is refused with OAUTHBEARER.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        ConfigType.INT,
        30,
        "By how much the clock of the issuer may differ from this one.",
        Range(0, 86_400),
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        ConfigType.STRING,
        None,
        "Where the token is by which this node says to others who it is: a file: URL, read at each login, or the "
        "https: URL of an issuer, who is asked for the next one by sasl.login.refresh.window.factor and its like.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        ConfigType.STRING,
        None,
        "As whom this node asks an issuer for a token; else clientId of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        ConfigType.PASSWORD,
        None,
        "The secret by which it does; else clientSecret of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope",
        ConfigType.STRING,
        None,
        "What it asks for, where the issuer wants to know; else scope of the login module.",
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor",
        ConfigType.DOUBLE,
        0.8,
        "After which part of a token's life an issuer is asked for the next one.",
        Range(0.5, 1),
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter",
        ConfigType.DOUBLE,
        0.05,
        "Up to which further part of it, by chance, so that not all nodes ask at once.",
        Range(0, 0.25),
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds",
        ConfigType.SHORT,
        60,
        "But not sooner than this. Without effect on a token that lives for less than both of these.",
        Range(0, 900),
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds",
        ConfigType.SHORT,
        300,
        "And not later than so long before a token's end.",
        Range(0, 3600),
    ),
    ConfigKey(
        "sasl.login.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "How soon an issuer that gave no new token is asked again; then doubled each time.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "The longest of those waits.",
        Range(1, 2**63 - 1),
    ),
    ConfigKey("sasl.oauthbearer.sub.claim.name", ConfigType.STRING, "sub", "The claim that says who it is."),
]
