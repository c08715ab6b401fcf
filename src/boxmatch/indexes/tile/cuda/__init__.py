"""The tile index on a graphics card: the same boxes, the same answers, many events at a time.

An event goes through `locating` (keys to ranks and cells, the tiles that are live for it),
`passing` (the lines of its live tiles), and `settling` (boxes that lines leave are checked, matches
put in order). Where a good part of all boxes match, `whole` compares them all. `warps` has what
lanes do together; `tables` draws the lines, on the processor, of boxes in the `order` of a card.
`search` is the way of a batch, in a `workspace`, to `pinned` memory; `card` looks for a card and
says what is wrong with it.

Nothing but `card` is imported before a card is to be used.
"""
