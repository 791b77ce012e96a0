"""What runs beside calls: long poll, lease renewal, presence, publish plans, outages."""
