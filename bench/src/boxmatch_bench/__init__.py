"""Benchmarks of Boxmatch: presets, measurements, competitors and reports."""

__version__ = "0.2.0"
