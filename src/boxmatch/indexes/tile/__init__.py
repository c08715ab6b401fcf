"""The tile index: `ranks` cut the axes, `order` clusters, `build` draws the lines, `search` and
`sweep` match.
"""
