"""``python -m aiorsmq_ng.cli``: the same as ``rsmqctl``."""

import sys

from . import main

sys.exit(main())
