"""The indexes that papers describe, each behind the verbs of `base.Index`."""
