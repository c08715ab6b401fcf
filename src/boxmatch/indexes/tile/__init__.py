"""The tile index, in the order in which data flows.

`ranks` cuts the axes and places keys between the cuts, `order` clusters the boxes, `slots` draws
the lines of bits and lists where predicates end, and `build` adds the directory and puts it all
into the arrays of `layout`. `search` matches, with `rows` and `blocks` where many boxes do;
`candidates` settles what lines leave open and lists the matches. Points with sets of keys are
matched by `lists`, with the help of `postings`. `index` is the class behind it.
"""
