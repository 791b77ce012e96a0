"""Small pure parts that every layer may use."""
