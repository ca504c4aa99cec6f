"""The replicated metadata log: state, files and driver."""
