"""SASL mechanisms as Apache Kafka has them: PLAIN, SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628).

Left out: GSSAPI (Kerberos).
"""
