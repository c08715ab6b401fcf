"""What can be seen of a broker at work: metrics, and their recent history."""
