"""Stored publications on Spark: what updates make of them, where they are kept, and what they enter
and leave. `boxmatch.spark.transitions` is the way in.

- `states`: publications as arrays, and what changes from one state to the next;
- `search`: which subscriptions of an index match states; `follower` has the transitions;
- `space_follower`: the same for several spaces, regions and filters, by `Spaces`;
- `regions`: subscriptions as tables and indexes have them;
- `keeper` and `pages`: publications in Spark's state.
"""
