"""Every operation, by area: its request, its kind and its results."""
