from __future__ import annotations

from boxmatch.cli import main

main()
