"""What several published indexes are made of: cells, counters, lists of endpoints, forests."""
