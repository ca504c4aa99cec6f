"""What nodes ask of the controllers: the metadata log, its voters, registration, and what brokers hand on."""
