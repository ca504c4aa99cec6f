"""Which metadata log a node takes part in, and what each kind of it brings along; `choice` names them."""
