"""Indexes: one module or package per algorithm, behind the verbs of `base.Index`."""
