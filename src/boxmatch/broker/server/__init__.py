"""The server process: sockets, protocols, middleware, logs, starting and stopping."""
