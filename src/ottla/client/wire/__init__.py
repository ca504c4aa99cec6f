"""Connections of tools to brokers: sockets, login, TLS, retries, timeouts, the models of what requests return.

Calls of the admin tools are in `client.admin.admin_calls`; records are sent and read by `client.librdkafka`.
"""
