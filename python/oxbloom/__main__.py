"""Runs the command `oxbloom` as `python -m oxbloom`."""

import sys

from oxbloom._cli import main

sys.exit(main())
