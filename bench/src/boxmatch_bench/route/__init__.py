"""A route on NATS beside a program that forwards every message."""
