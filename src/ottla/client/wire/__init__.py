"""Connections of tools to brokers: sockets, authentication, TLS, timeouts, and models of results.

Admin calls are in `client.admin`; `client.librdkafka` sends and reads records.
"""
