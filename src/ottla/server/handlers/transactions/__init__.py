"""Handlers of transactions: their coordinator's requests, and the markers that end them."""
