"""The papers' experiments, run again: declared, measured, tabled, drawn."""
