"""What a feed does with what is published to it: find out whom it concerns."""
