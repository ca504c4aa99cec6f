"""Listener, connection and outbound side of one client connection."""
