"""What is kept on disk: SQLite databases, folders with locks, and group commit."""
