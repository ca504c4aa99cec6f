"""The transaction coordinator: transactional producers and the completion of transactions (KIP-98, KIP-890)."""
