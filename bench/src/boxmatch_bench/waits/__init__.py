"""How long other threads wait for the GIL beside a call of the library."""
