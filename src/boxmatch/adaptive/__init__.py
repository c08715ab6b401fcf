"""Trading a bounded rate of false matches for speed."""
