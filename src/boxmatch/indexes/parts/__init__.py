"""What several indexes are made of: cells, buckets, bit sets, counters."""
