"""``python -m rsmq_conformance``."""

import sys

from .command import main

sys.exit(main())
