"""Subscribers and their subscriptions."""
