"""Boxmatch as a service: publishers and subscribers over the network, nothing acknowledged lost."""
