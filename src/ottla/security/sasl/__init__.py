"""Apache Kafka's SASL mechanisms: PLAIN, SCRAM (RFC 5802), OAUTHBEARER (RFC 7628), and GSSAPI (RFC 4752)."""
