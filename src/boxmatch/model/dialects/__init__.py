"""Filters that people have already, in the languages of other systems."""
