"""State-persistent subject spaces: publications and subscriptions that stay, and transitions."""
