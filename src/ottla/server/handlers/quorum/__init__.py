"""Handlers for requests of nodes to controllers: the metadata log, its voters, registration, forwarded requests."""
