"""A broker under load: throughput, latency, memory; server and load in processes of their own."""
