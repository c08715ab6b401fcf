"""The data model: schemas, keys, boxes, points, and the filter language."""

from __future__ import annotations

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.model.schema import Attribute, Schema

__all__ = ["ABSENT", "FIRST", "LAST", "Attribute", "Boxes", "Schema"]
