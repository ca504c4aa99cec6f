"""The transaction coordinator: who produces under a transactional id, how transactions end (KIP-98, KIP-890)."""
