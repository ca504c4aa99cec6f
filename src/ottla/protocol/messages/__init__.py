"""One module per API: its request and response, declared once for all versions, and its row in the registry."""
