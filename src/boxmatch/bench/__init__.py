"""Benchmarks: presets, measurements, competitors and reports."""
