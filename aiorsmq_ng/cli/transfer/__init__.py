"""Messages as lines of files: ``message export`` and ``import``, and ``send --file``."""
