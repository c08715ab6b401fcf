"""The server process: sockets, timeouts, middleware, logs, starting and stopping."""
