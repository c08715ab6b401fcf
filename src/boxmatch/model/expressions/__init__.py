"""Scalar expressions over attributes: what a filter may compare with constants."""
