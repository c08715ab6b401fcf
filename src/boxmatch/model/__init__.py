"""The data model: schemas, keys, boxes, points, and the filter language."""
