"""``rsmqctl top``: all queues, live."""
