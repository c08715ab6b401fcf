"""The adjuster over a real broker: the test bed of the Ada-REIN paper, and an overload."""
