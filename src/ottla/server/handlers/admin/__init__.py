"""Handlers for cluster administration: topics, configs, quotas, ACLs, brokers, log directories."""
