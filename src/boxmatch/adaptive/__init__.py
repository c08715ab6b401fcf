"""Trading a bounded rate of false matches for speed: pure mathematics over boxes and counts.

- `skipping`: which attributes to leave unchecked at a tolerated rate;
- `excess`: how many false matches leaving an attribute unchecked adds, counted box by box;
- `selectivity`: how often predicates hold, guessed from boxes or measured on events;
- `cost`: how much time it saves;
- `adjuster`: how much to tolerate, by how long events wait.
"""
