"""Matching on Spark against the engine alone and against a join in Spark SQL, in one run."""
