"""Tools of this repository; none of them is in the wheel."""
