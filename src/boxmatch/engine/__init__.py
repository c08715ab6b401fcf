"""The engine: subscriptions by id over immutable parts, snapshots, compaction, saved files."""
