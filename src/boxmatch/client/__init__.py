"""A client of the broker, for programs that publish to it or listen to it."""
