"""The broker: wiring, dispatch and one handler module per API."""
