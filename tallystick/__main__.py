"""`python -m tallystick`: the command line."""

import sys

from tallystick.cli import main

sys.exit(main())
