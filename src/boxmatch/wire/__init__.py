"""What goes over the network, described once for the broker, its documentation and its clients.

`requests` and `responses` are what the broker reads and writes, `overview` what it sends to its
dashboard. They are structs of msgspec: types, limits and texts stand there and nowhere else.
"""
