"""What goes over the network, described once for the broker, its documentation and its clients.

`requests` is what the broker is asked, `answers` what it says, `overview` what its dashboard is
told. They are structs of msgspec: types, limits and texts stand there and nowhere else.
"""
