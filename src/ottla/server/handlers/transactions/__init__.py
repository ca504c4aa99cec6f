"""Handlers of transactions: requests to their coordinator, and transaction markers."""
