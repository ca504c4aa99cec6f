"""Request handlers, one module per API: key, versions, and the function that serves it."""
