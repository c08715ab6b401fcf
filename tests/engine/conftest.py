from __future__ import annotations

import sys
from pathlib import Path

# The evaluator of filters in plain Python lives beside the tests of the filter language.
sys.path.insert(0, str(Path(__file__).parents[1] / "model" / "filters"))
