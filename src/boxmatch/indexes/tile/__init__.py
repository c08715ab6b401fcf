"""The tile index, in the order in which data flows.

`ranks` cuts the axes and places keys between the cuts, `order` clusters the boxes, `directory` and
`slots` draw the two levels of bitmaps, `endpoints` lists where predicates end, and `build` puts it
all into the arrays of `layout`. `search` matches, with `sweep` where many boxes do; `candidates`
settles what lines leave open, `results` lists the boxes, and `index` is the class behind it all.
"""
