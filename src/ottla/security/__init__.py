"""Who speaks, and in secret: keys and certificates, contexts of TLS, mechanisms of SASL, principals."""
