"""SASL mechanisms as Apache Kafka has them: PLAIN, SCRAM (RFC 5802), OAUTHBEARER (RFC 7628), and GSSAPI (RFC 4752).

Left out: the client's side of GSSAPI.
"""
